"""Measure the state of the whole service from its rows, for monitoring."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy.orm import Session

from app.db.repositories import operations, tallies
from app.db.session import Database


@dataclass(frozen=True, slots=True)
class Sample:
    """One number of one metric. All samples of a name carry the same label names."""

    name: str
    help: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


def measure_service(database: Database) -> list[Sample]:
    """Measure jobs, attempts, outbox, workers and storage of all projects."""
    with database.read() as session:
        now = database.now(session)
        return [*_jobs(session, now), *_attempts(session), *_operations(session, now)]


def _jobs(session: Session, now: datetime) -> Iterator[Sample]:
    for status, name, count in operations.count_jobs(session):
        labels = {"status": status, "device_class": name}
        yield Sample("debias_jobs", "Jobs by status.", count, labels)
    for ended in tallies.count_finished(session):
        labels = {"method": ended.method, "status": ended.outcome, "error": ended.error}
        yield Sample("debias_jobs_finished_total", "Finished jobs.", ended.count, labels)
    oldest = operations.oldest_queued(session)
    age = _age_s(oldest, now)
    yield Sample("debias_queue_oldest_age_seconds", "Age of the oldest queued job.", age)


def _attempts(session: Session) -> Iterator[Sample]:
    outcomes = tallies.count_outcomes(session)
    for outcome, count in outcomes.items():
        yield Sample(
            "debias_attempts_total", "Ended attempts by outcome.", count, {"outcome": outcome}
        )
    lost = outcomes.get("lost", 0)
    yield Sample("debias_lease_expired_total", "Attempts whose worker was lost.", lost)
    fenced = outcomes.get("fenced", 0)
    yield Sample("debias_fenced_total", "Attempts that were overtaken.", fenced)


def _operations(session: Session, now: datetime) -> Iterator[Sample]:
    pending, oldest = operations.outbox_backlog(session)
    yield Sample("debias_outbox_pending", "Outbox messages not acted on.", pending)
    age = _age_s(oldest, now)
    yield Sample("debias_outbox_oldest_age_seconds", "Age of the oldest of them.", age)
    for worker in operations.list_workers(session):
        labels = {"state": worker.state, "device_class": ",".join(worker.classes)}
        yield Sample("debias_workers", "Workers by state.", worker.count, labels)
    for host, free in operations.worker_disks(session):
        yield Sample("debias_worker_disk_free_bytes", "Free scratch.", free, {"host": host})
    for project, size in operations.stored_bytes(session):
        yield Sample("debias_storage_bytes", "Stored bytes.", size, {"project": project})


def _age_s(moment: datetime | None, now: datetime) -> float:
    return max(0.0, (now - moment).total_seconds()) if moment else 0.0
