"""A running service with the fake method, and what fault tests do to it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import sqlalchemy as sa

from app.db.session import ANSWER_TIMEOUT_S, Database
from app.db.tables import Artifact, Job, JobAttempt, JobEvent
from app.domain.ids import IdPrefix, parse_id
from tests.service import Service, embedded, wait_for
from workers.testkit.models import write_tiny_model

LEASE_TTL_S = 3.0
# Seen: 38 s for a job of which a process was killed, on two cores that eight others used.
END_TIMEOUT_S = 90.0
TERMINAL = {"succeeded", "failed", "cancelled"}


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Settings of a service whose periods are short and whose children start fast."""
    model = folder / "models" / "tiny"
    if not model.exists():  # a rewritten model is another one to the job that was promised it
        write_tiny_model(model)
    return {
        "DEBIAS_MODELS_DIR": str(folder / "models"),
        "DEBIAS_LEASE_TTL_S": str(LEASE_TTL_S),
        "DEBIAS_WORKER_PRELOAD": "",
        "DEBIAS_DRAIN_TIMEOUT_S": "20",
        **more,
    }


@contextmanager
def running(service: Service) -> Iterator[Service]:
    """Start the service, and stop it whatever happens."""
    try:
        yield service.start()
    finally:
        service.stop()


def embedded_service(folder: Path, **more: str) -> Service:
    return embedded(folder / "home", **environment(folder, **more))


def create(service: Service, **config: Any) -> str:
    """Create a fake job on the tiny model."""
    body = {
        "kind": "debias",
        "model": {"path": "tiny"},
        "method": "fake",
        "config": config,
        "seed": 7,
    }
    with service.client() as client:
        return str(client.jobs.create(body)["id"])


def get(service: Service, job_id: str) -> dict[str, Any]:
    with service.client() as client:
        return dict(client.jobs.get(job_id))


def wait_until(service: Service, job_id: str, **wanted: Any) -> dict[str, Any]:
    """Wait until the job's fields have these values."""

    def probe() -> dict[str, Any] | None:
        job = get(service, job_id)
        return job if all(job[name] == value for name, value in wanted.items()) else None

    found = wait_for(probe, timeout_s=END_TIMEOUT_S, what=f"{job_id} with {wanted}")
    assert found is not None
    return found


def wait_for_end(service: Service, job_id: str) -> dict[str, Any]:
    def probe() -> dict[str, Any] | None:
        job = get(service, job_id)
        return job if job["status"] in TERMINAL else None

    found = wait_for(probe, timeout_s=END_TIMEOUT_S, what=f"the end of {job_id}")
    assert found is not None
    return found


@contextmanager
def rows_of(service: Service, *, answer_timeout_s: float = ANSWER_TIMEOUT_S) -> Iterator[Database]:
    """Open the database of the service."""
    url = service.environment.get("DEBIAS_DATABASE_URL", f"sqlite:///{service.home}/debias.db")
    database = Database(url, answer_timeout_s=answer_timeout_s)
    try:
        yield database
    finally:
        database.dispose()


def uuid_of(job_id: str) -> UUID:
    found = parse_id(IdPrefix.JOB, job_id)
    assert found is not None
    return found


def snapshot(service: Service, job_id: str) -> dict[str, Any]:
    """Everything that a stale process might change."""
    key = uuid_of(job_id)
    with rows_of(service) as database, database.read() as session:
        job = session.execute(sa.select(Job).where(Job.id == key)).scalar_one()
        return {
            "job": (job.status, job.fence, job.version, job.last_seq, job.result),
            "attempts": session.execute(
                sa.select(JobAttempt.number, JobAttempt.outcome)
                .where(JobAttempt.job_id == key)
                .order_by(JobAttempt.number)
            ).all(),
            "events": session.execute(
                sa.select(JobEvent.seq, JobEvent.type)
                .where(JobEvent.job_id == key)
                .order_by(JobEvent.seq)
            ).all(),
            "artifacts": session.execute(
                sa.select(Artifact.name, Artifact.sha256)
                .where(Artifact.job_id == key)
                .order_by(Artifact.name)
            ).all(),
        }


def outcomes(service: Service, job_id: str) -> list[str | None]:
    return [outcome for _, outcome in snapshot(service, job_id)["attempts"]]


def checkpoint_digest(service: Service, job_id: str) -> str:
    digests = dict(tuple(row) for row in snapshot(service, job_id)["artifacts"])
    return str(digests["checkpoint/model.safetensors"])


def family(service: Service) -> list[psutil.Process]:
    """All processes of the service, now."""
    found = []
    for process in service.processes.values():
        parent = psutil.Process(process.pid)
        found += [parent, *parent.children(recursive=True)]
    return found


def still_alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [
        process
        for process in processes
        if process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    ]


def wait_until_gone(processes: list[psutil.Process], *, timeout_s: float) -> None:
    def probe() -> bool:
        return not still_alive(processes)

    wait_for(probe, timeout_s=timeout_s, what=f"the end of {processes}")
