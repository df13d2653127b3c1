"""Append job events and outbox messages, inside the transaction of the change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, cast
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.tables import Job, JobEvent, OutboxMessage
from app.domain.clock import unix_ms
from app.domain.ids import new_id

Level = Literal["debug", "info", "warning", "error"]
KEPT_PROGRESS_EVENTS = 200
# Into the tables, not the classes: no object of a session is made, which takes most of the time.
_INSERT_EVENT = sa.insert(cast(sa.Table, JobEvent.__table__))
_INSERT_MESSAGE = sa.insert(cast(sa.Table, OutboxMessage.__table__))


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event of a job that is being created."""

    type: str
    level: Level = "info"
    data: Mapping[str, Any] = field(default_factory=dict)


def insert_first_events(
    session: Session, job_id: UUID, events: Sequence[NewEvent], *, now: datetime
) -> None:
    """Write the events of a job whose row was just inserted with `last_seq` at their number."""
    session.execute(
        _INSERT_EVENT,
        [
            {
                "job_id": job_id,
                "seq": seq,
                "type": event.type,
                "level": event.level,
                "at": now,
                "data": dict(event.data),
            }
            for seq, event in enumerate(events, start=1)
        ],
    )


def append_event(
    session: Session,
    job_id: UUID,
    event: str,
    *,
    now: datetime,
    data: Mapping[str, Any] | None = None,
    level: Level = "info",
) -> int:
    """Write the job's next event and return its number.

    Raising `last_seq` locks the job row, which makes the numbers gapless.
    """
    seq: int = session.execute(
        sa.update(Job)
        .where(Job.id == job_id)
        .values(last_seq=Job.last_seq + 1, version=Job.version + 1, updated_at=now)
        .returning(Job.last_seq)
    ).scalar_one()
    row = {"job_id": job_id, "seq": seq, "type": event, "level": level, "at": now}
    session.execute(_INSERT_EVENT, row | {"data": dict(data or {})})
    return seq


def last_event(session: Session, job_id: UUID) -> JobEvent | None:
    """Give the job's newest event."""
    newest = sa.select(JobEvent).where(JobEvent.job_id == job_id).order_by(JobEvent.seq.desc())
    return session.execute(newest.limit(1)).scalar_one_or_none()


def prune_progress(session: Session, job_id: UUID) -> None:
    """Keep only the newest progress events of a job; all other events stay."""
    numbers = (
        sa.select(JobEvent.seq)
        .where(JobEvent.job_id == job_id, JobEvent.type == "job.progress")
        .order_by(JobEvent.seq.desc())
        .offset(KEPT_PROGRESS_EVENTS)
    )
    session.execute(sa.delete(JobEvent).where(JobEvent.job_id == job_id, JobEvent.seq.in_(numbers)))


def add_to_outbox(
    session: Session,
    topic: str,
    aggregate_id: UUID,
    *,
    now: datetime,
    payload: Mapping[str, Any] | None = None,
    delay_s: float = 0.0,
) -> None:
    """Ask for a side effect after this transaction commits."""
    row = {
        "id": new_id(unix_ms(now)),
        "created_at": now,
        "topic": topic,
        "aggregate_id": aggregate_id,
        "payload": dict(payload or {}),
        "available_at": now + timedelta(seconds=delay_s),
    }
    session.execute(_INSERT_MESSAGE, row)
