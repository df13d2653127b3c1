"""The state of the whole service, over all projects: for monitoring and the watcher."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.tables import (
    IS_LEASED,
    Blob,
    Job,
    JobLogChunk,
    OutboxMessage,
    Project,
    Worker,
)
from app.domain.states import JobStatus


@dataclass(frozen=True, slots=True)
class WorkerCount:
    """How many workers of a kind there are."""

    state: str
    classes: tuple[str, ...]
    count: int


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """What waits and runs in one device class."""

    queued: int = 0
    dispatched: int = 0
    running: int = 0
    oldest_queued_at: datetime | None = None


def count_jobs(session: Session) -> list[tuple[str, str, int]]:
    """Count live jobs by status and device class."""
    statement = (
        sa.select(Job.status, Job.device_class, sa.func.count())
        .where(Job.deleted_at.is_(None))
        .group_by(Job.status, Job.device_class)
    )
    return [(status, name, count) for status, name, count in session.execute(statement)]


def oldest_queued(session: Session) -> datetime | None:
    """When the longest waiting job was queued."""
    statement = sa.select(sa.func.min(Job.queued_at)).where(Job.status == JobStatus.QUEUED)
    return session.execute(statement).scalar_one()


def queue_depths(session: Session) -> dict[str, QueueDepth]:
    """Count waiting, dispatched and running jobs, by device class; classes without any are out."""
    running = dict(
        session.execute(
            sa.select(Job.device_class, sa.func.count()).where(IS_LEASED).group_by(Job.device_class)
        ).all()
    )
    waiting = {
        name: (count - dispatched, dispatched, oldest)
        for name, count, dispatched, oldest in session.execute(
            sa.select(
                Job.device_class,
                sa.func.count(),
                sa.func.count(Job.dispatched_at),
                sa.func.min(Job.queued_at),
            )
            .where(Job.status == JobStatus.QUEUED)
            .group_by(Job.device_class)
        )
    }
    depths = {}
    for name in running.keys() | waiting.keys():
        queued, dispatched, oldest = waiting.get(name, (0, 0, None))
        depths[name] = QueueDepth(queued, dispatched, running.get(name, 0), oldest)
    return depths


def outbox_backlog(session: Session) -> tuple[int, datetime | None]:
    """How many outbox messages wait, and since when the oldest does."""
    statement = sa.select(sa.func.count(), sa.func.min(OutboxMessage.created_at)).where(
        OutboxMessage.published_at.is_(None)
    )
    count, oldest = session.execute(statement).one()
    return count, oldest


def list_workers(session: Session) -> list[WorkerCount]:
    """Count workers by state and classes."""
    rows = session.execute(sa.select(Worker.state, Worker.classes))
    counts = Counter((state, tuple(classes)) for state, classes in rows)
    return [WorkerCount(state, classes, count) for (state, classes), count in counts.items()]


def probe_writing(session: Session) -> None:
    """Do a write that changes nothing; a database that may only be read refuses it."""
    session.execute(sa.update(Worker).where(sa.false()).values(state=Worker.state))


def worker_disks(session: Session) -> list[tuple[str, int]]:
    """Free scratch of each host with a live worker."""
    statement = (
        sa.select(Worker.host, sa.func.min(Worker.disk_free_bytes))
        .where(Worker.state.in_(("ready", "draining")), Worker.disk_free_bytes.is_not(None))
        .group_by(Worker.host)
    )
    return [(host, free or 0) for host, free in session.execute(statement)]


def stored_bytes(session: Session) -> list[tuple[str, int]]:
    """Sum the stored bytes by project name, as their quota does."""
    statement = (
        sa.select(Project.name, sa.func.sum(Blob.size_bytes))
        .join(Blob, Blob.project_id == Project.id)
        .where(Blob.state == "stored")
        .group_by(Project.name)
    )
    return [(name, int(size)) for name, size in session.execute(statement)]


def last_event_numbers(session: Session, job_ids: Sequence[UUID]) -> dict[UUID, int]:
    """Find the last event number of each job; the caller has checked that they may be seen."""
    statement = sa.select(Job.id, Job.last_seq).where(Job.id.in_(job_ids))
    return {row.id: row.last_seq for row in session.execute(statement)}


def count_log_chunks(session: Session, job_ids: Sequence[UUID]) -> dict[UUID, int]:
    """Count the log chunks of each job that has any; the caller has checked as above."""
    statement = (
        sa.select(JobLogChunk.job_id, sa.func.count().label("chunks"))
        .where(JobLogChunk.job_id.in_(job_ids))
        .group_by(JobLogChunk.job_id)
    )
    return {row.job_id: row.chunks for row in session.execute(statement)}
