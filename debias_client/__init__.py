"""Client of the Evenhand API; needs httpx only.

>>> with Client("http://127.0.0.1:8000") as client:  # doctest: +SKIP
...     job = client.jobs.create(spec)
...     job = client.jobs.wait(job["id"], timeout_s=600)
...     client.download(job["id"], "result")
"""

from debias_client.client import Client
from debias_client.errors import (
    ApiError,
    ClientError,
    ConnectionFailed,
    DigestMismatch,
    FieldError,
    UnexpectedAnswer,
    UnsafeName,
    WaitTimeout,
)
from debias_client.jobs import Jobs
from debias_client.methods import Methods
from debias_client.retries import RetryPolicy
from debias_client.schemas import Artifact, Job, JobError, JobEvent, JobResult, Me, Method

__all__ = [
    "ApiError",
    "Artifact",
    "Client",
    "ClientError",
    "ConnectionFailed",
    "DigestMismatch",
    "FieldError",
    "Job",
    "JobError",
    "JobEvent",
    "JobResult",
    "Jobs",
    "Me",
    "Method",
    "Methods",
    "RetryPolicy",
    "UnexpectedAnswer",
    "UnsafeName",
    "WaitTimeout",
]
