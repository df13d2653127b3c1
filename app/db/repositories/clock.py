"""Rows that were stamped before the clock was set back, and would wait for that time to return."""

from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.tables import Job, OutboxMessage, Worker
from app.domain.states import LEASED, JobStatus


def pull_back(session: Session, *, now: datetime, lease_ttl_s: float) -> int:
    """Bring stamps of the future to now; return the number of rows.

    A clock that ran hours ahead and was corrected leaves jobs that are due in hours, messages
    whose loss nobody looks for until then, and dead workers that seem to have been seen just now.
    """
    lease_end = now + timedelta(seconds=lease_ttl_s)
    waiting = sa.update(Job).where(Job.status == JobStatus.QUEUED)
    statements = (
        waiting.where(Job.queued_at > now, Job.run_after > now).values(run_after=now),
        waiting.where(Job.dispatched_at > now).values(dispatched_at=now),
        waiting.where(Job.published_at > now).values(published_at=now),
        sa.update(Job)
        .where(Job.status.in_(LEASED), Job.lease_expires_at > lease_end)
        .values(lease_expires_at=lease_end),
        sa.update(Worker).where(Worker.last_seen_at > now).values(last_seen_at=now),
        sa.update(OutboxMessage)
        .where(OutboxMessage.published_at.is_(None), OutboxMessage.created_at > now)
        .values(available_at=now, created_at=now),
    )
    return sum(_affected(session, statement) for statement in statements)


def _affected(session: Session, statement: sa.Update) -> int:
    result = session.execute(statement.execution_options(synchronize_session=False))
    return int(getattr(result, "rowcount", 0))
