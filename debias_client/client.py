"""The entry point."""

from pathlib import Path
from types import TracebackType
from typing import Self, cast

import httpx

from debias_client.download import Downloader
from debias_client.jobs import Jobs
from debias_client.methods import Methods
from debias_client.pages import as_object
from debias_client.retries import RetryPolicy
from debias_client.schemas import Me
from debias_client.transport import Clock, Transport

# A POST may spend 5 s of the service's own budget on looking at a hub model.
DEFAULT_TIMEOUT_S = 30.0


class Client:
    """A connection to one Evenhand service; close it, or use it in a `with` statement.

    Reads, keyed creates and other calls that may be repeated are tried again after answers
    429, 502, 503 and 504 and after lost connections, as `retry` says. `timeout` is in seconds,
    for connecting and for each silence while reading. Safe to share between threads.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT_S,
        retry: RetryPolicy | None = None,
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        headers = {"Accept": "application/json", "User-Agent": "evenhand-client"}
        if api_key is not None:
            headers["Authorization"] = f"Bearer {api_key}"
        self._http = httpx.Client(base_url=base_url, headers=headers, transport=transport)
        self._transport = Transport(
            self._http, retry or RetryPolicy(), timeout_s=timeout, clock=clock or Clock()
        )
        self.methods = Methods(self._transport)
        self.jobs = Jobs(self._transport)

    def me(self) -> Me:
        """Give the key in use, its project and scopes, and the quotas."""
        return cast("Me", as_object(self._transport.get("/v1/me"), "/v1/me"))

    def download(
        self, job_id: str, directory: str | Path, *, parallel: int = 4
    ) -> tuple[Path, ...]:
        """Fetch all artifacts of a job into `directory`, made if needed; give their paths.

        Each file is verified by its SHA-256 and appears under its name only when complete.
        Complete files are kept, and half-fetched ones continued, when the call is repeated.
        """
        downloader = Downloader(self._transport, parallel=parallel)
        return downloader.fetch_all(self.jobs.artifacts(job_id), Path(directory))

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
