"""Give jobs a past: running, finished, with files, logs and metrics, without any worker."""

import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from app.db.events import append_event
from app.db.tables import (
    Artifact,
    Blob,
    EvaluationResult,
    Job,
    JobAttempt,
    JobLogChunk,
    MetricPoint,
    ModelFile,
    ModelVersion,
)
from app.db.transition import transition
from app.dispatch.endings import Ending, EndingWriter
from app.dispatch.timing import Timing
from app.domain.clock import format_time, unix_ms
from app.domain.ids import IdPrefix, format_id, new_id
from app.domain.states import Actor, AttemptOutcome, JobStatus
from app.storage.keys import blob_key
from tests.integration.api.callers import Caller, job_uuid

_MEDIA_TYPES = {".html": "text/html", ".md": "text/markdown; charset=utf-8"}
RESULT: dict[str, Any] = {
    "metrics": {"before": {"parity": 0.5}, "after": {"parity": 0.25}, "delta": {"parity": -0.25}},
    "summary": [{"benchmark": "pairs", "metric": "parity", "before": 0.5, "after": 0.25}],
    "warnings": [],
}
ERROR = {
    "code": "internal",
    "message": "It failed.",
    "hint": "Try again.",
    "retryable": False,
    "attempt": 1,
    "phase": "debiasing",
    "exit_code": None,
    "signal": None,
}


def start(caller: Caller, job_id: str) -> UUID:
    """Let a job run its next attempt."""
    uuid = job_uuid(job_id)
    database = caller.app.database
    with database.write() as session:
        now = database.now(session)
        worker = new_id(unix_ms(now))
        attempt = session.execute(sa.select(Job.attempt).where(Job.id == uuid)).scalar_one() + 1
        values = {
            "lease_expires_at": now + timedelta(minutes=1),
            "attempt": attempt,
            "fence": attempt,
            "worker_id": worker,
            "started_at": now,
            "phase": "debiasing",
        }
        assert transition(
            session, uuid, JobStatus.QUEUED, JobStatus.RUNNING, Actor.WORKER, now=now, values=values
        )
        session.add(
            JobAttempt(
                id=new_id(unix_ms(now)),
                created_at=now,
                project_id=caller.project_id,
                job_id=uuid,
                number=attempt,
                fence=attempt,
                worker_id=worker,
                host="host",
                pid=1,
                started_at=now,
            )
        )
    return uuid


def finish(
    caller: Caller,
    job_id: str,
    status: JobStatus = JobStatus.SUCCEEDED,
    *,
    files: Mapping[str, bytes] | None = None,
) -> None:
    """End a running job, with artifacts when it succeeded."""
    uuid = job_uuid(job_id)
    database = caller.app.database
    stored = {name: _store(caller, name, data) for name, data in (files or {}).items()}
    with database.write() as session:
        now = database.now(session)
        for name, (columns, blob) in stored.items():
            session.merge(Blob(**blob, created_at=now, last_referenced_at=now))
            session.flush()
            session.add(
                Artifact(
                    id=new_id(unix_ms(now)), created_at=now, updated_at=now, job_id=uuid, **columns
                )
            )
            append_event(session, uuid, "artifact.created", now=now, data={"name": name})
        outcome = {"result": RESULT} if status == JobStatus.SUCCEEDED else {"error": ERROR}
        assert transition(
            session, uuid, JobStatus.RUNNING, status, Actor.WORKER, now=now, values=outcome
        )
        session.execute(
            sa.update(JobAttempt)
            .where(JobAttempt.job_id == uuid, JobAttempt.ended_at.is_(None))
            .values(ended_at=now, outcome=status.value)
        )


def finished_job(caller: Caller, files: Mapping[str, bytes] | None = None, **fields: Any) -> str:
    """Create a job that has succeeded; give its id."""
    job_id = str(caller.create_job(**fields)["id"])
    start(caller, job_id)
    finish(caller, job_id, files=files)
    return job_id


def failed_job(caller: Caller, **fields: Any) -> str:
    """Create a job that has failed; give its id."""
    job_id = str(caller.create_job(**fields)["id"])
    start(caller, job_id)
    finish(caller, job_id, JobStatus.FAILED)
    return job_id


def paused_job(caller: Caller, **fields: Any) -> str:
    """Create a job whose worker has done what a pause asked for; give its id."""
    job_id = str(caller.create_job(**fields)["id"])
    start(caller, job_id)
    assert caller.post(f"/v1/jobs/{job_id}/pause").status_code == 202
    give_back(caller, job_id, AttemptOutcome.PAUSED)
    return job_id


def give_back(caller: Caller, job_id: str, outcome: AttemptOutcome) -> None:
    """End the running attempt of a job as its worker does."""
    database = caller.app.database
    with database.write() as session:
        statement = sa.select(Job).where(Job.id == job_uuid(job_id)).with_for_update()
        job = session.execute(statement).scalar_one()
        now = database.now(session)
        timing = Timing.from_lease(caller.app.settings.lease_ttl_s)
        EndingWriter(timing).end(session, job, Ending(outcome), by=Actor.WORKER, now=now)


def write_log(
    caller: Caller,
    job_id: str,
    texts: Sequence[str],
    *,
    stream: str = "log",
    n: int = 0,
    first_line: int = 1,
    level: str = "info",
) -> None:
    """Write one chunk of a log."""
    uuid = job_uuid(job_id)
    key = f"logs/{job_id}/{stream}/{n}"
    with caller.app.database.write() as session:
        now = caller.app.database.now(session)
        entries = [{"at": format_time(now), "level": level, "text": text} for text in texts]
        data = gzip.compress("\n".join(json.dumps(entry) for entry in entries).encode())
        caller.app.store.put_bytes(key, data)
        session.add(
            JobLogChunk(
                job_id=uuid,
                attempt=1,
                stream=stream,
                n=n,
                first_line=first_line,
                line_count=len(texts),
                byte_size=len(data),
                storage_key=key,
                first_at=now,
                last_at=now,
            )
        )


def write_metric(caller: Caller, job_id: str, name: str, values: Sequence[float | str]) -> None:
    """Write a curve; a text stands for a value that is not finite."""
    with caller.app.database.write() as session:
        now = caller.app.database.now(session)
        for step, value in enumerate(values):
            number = None if isinstance(value, str) else value
            nonfinite = value if isinstance(value, str) else None
            session.add(
                MetricPoint(
                    job_id=job_uuid(job_id),
                    name=name,
                    attempt=1,
                    step=step,
                    value=number,
                    nonfinite=nonfinite,
                    at=now,
                )
            )


def write_evaluation(caller: Caller, job_id: str, **columns: Any) -> None:
    """Write an evaluation row."""
    with caller.app.database.write() as session:
        now = caller.app.database.now(session)
        values = {
            "stage": "before",
            "benchmark": "pairs",
            "benchmark_version": "1",
            "metric": "parity",
            "group_key": "",
            "seed": 0,
            "value": 0.5,
            "n": 10,
            "unit": "1",
            "fence": 1,
            **columns,
        }
        session.add(
            EvaluationResult(
                id=new_id(unix_ms(now)),
                created_at=now,
                project_id=caller.project_id,
                job_id=job_uuid(job_id),
                **values,
            )
        )


def write_version(
    caller: Caller,
    job_id: str,
    files: Mapping[str, bytes],
    base_source: Mapping[str, Any] | None = None,
) -> str:
    """Write the model version that a job made; give its id."""
    stored = [(path, _store(caller, path, data)[1]) for path, data in files.items()]
    with caller.app.database.write() as session:
        now = caller.app.database.now(session)
        version = ModelVersion(
            id=new_id(unix_ms(now)),
            created_at=now,
            project_id=caller.project_id,
            source={"type": "job"},
            model_type="llama",
            params=1,
            size_bytes=sum(blob["size_bytes"] for _, blob in stored),
            content_sha256="0" * 64,
            base_source=base_source,
            created_by_job_id=job_uuid(job_id),
        )
        session.add(version)
        session.flush()
        for path, blob in stored:
            session.merge(Blob(**blob, created_at=now, last_referenced_at=now))
            session.add(
                ModelFile(
                    model_version_id=version.id,
                    path=path,
                    blob_sha256=blob["sha256"],
                    size_bytes=blob["size_bytes"],
                )
            )
        return format_id(IdPrefix.MODEL_VERSION, version.id)


def _store(caller: Caller, name: str, data: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    sha256 = hashlib.sha256(data).hexdigest()
    key = blob_key(caller.shown_project, sha256, "1")
    caller.app.store.put_bytes(key, data)
    media_type = _MEDIA_TYPES.get(PurePosixPath(name).suffix, "application/json")
    columns = {
        "project_id": caller.project_id,
        "fence": 1,
        "name": name,
        "type": "report",
        "media_type": media_type,
        "size_bytes": len(data),
        "sha256": sha256,
    }
    blob = {
        "project_id": caller.project_id,
        "sha256": sha256,
        "size_bytes": len(data),
        "storage_key": key,
    }
    return columns, blob
