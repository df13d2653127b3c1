"""How many jobs and attempts have ended so far, those included whose rows are gone.

Counters of monitoring must never fall. Rows are purged, and a job that is tried again has no longer
ended: what they counted for is kept as a number, in the transaction that takes it away.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.repositories.upsert import insert_into
from app.db.tables import Job, JobAttempt, Tally
from app.domain.states import TERMINAL

Counts = sa.Select[Any, Any, Any, int]

_JOBS, _ATTEMPTS = "jobs", "attempts"
# In the text: as a parameter, PostgreSQL would not see that it groups by what it selects.
_NOTHING = sa.literal_column("''", sa.String)


@dataclass(frozen=True, slots=True)
class EndedCount:
    """How many ended in one way; `error` is empty where there was none."""

    method: str
    outcome: str
    error: str
    count: int


def count_finished(session: Session) -> list[EndedCount]:
    """Count how often jobs came to an end, by method, status and error code."""
    return _count(session, _JOBS, _finished())


def count_outcomes(session: Session) -> dict[str, int]:
    """Count ended attempts by outcome."""
    return {ended.outcome: ended.count for ended in _count(session, _ATTEMPTS, _ended_attempts())}


def remember_ended(session: Session, job_ids: Sequence[UUID]) -> None:
    """Keep the counts of jobs, and of their attempts, that are about to be deleted."""
    _add(session, _JOBS, _finished(Job.id.in_(job_ids)))
    _add(session, _ATTEMPTS, _ended_attempts(JobAttempt.job_id.in_(job_ids)))


def remember_finished(session: Session, job_id: UUID) -> None:
    """Keep the count of a job that is about to be tried again; its row is locked."""
    _add(session, _JOBS, _finished(Job.id == job_id))


def _finished(*which: sa.ColumnElement[bool]) -> Counts:
    error = sa.func.coalesce(Job.error["code"].as_string(), _NOTHING)
    return (
        sa.select(
            Job.method.label("method"),
            Job.status.label("outcome"),
            error.label("error"),
            sa.func.count().label("count"),
        )
        .where(Job.status.in_(TERMINAL), *which)
        .group_by(Job.method, Job.status, error)
    )


def _ended_attempts(*which: sa.ColumnElement[bool]) -> Counts:
    return (
        sa.select(
            _NOTHING.label("method"),
            JobAttempt.outcome.label("outcome"),
            _NOTHING.label("error"),
            sa.func.count().label("count"),
        )
        .where(JobAttempt.outcome.is_not(None), *which)
        .group_by(JobAttempt.outcome)
    )


def _count(session: Session, kind: str, present: Counts) -> list[EndedCount]:
    gone = sa.select(Tally.method, Tally.outcome, Tally.error, Tally.count).where(
        Tally.kind == kind
    )
    # One statement: between two, rows could move from one side to the other.
    ended = sa.union_all(present, gone).subquery("ended")
    method, outcome, error, count = ended.c
    rows = session.execute(
        sa.select(method, outcome, error, sa.func.sum(count)).group_by(method, outcome, error)
    )
    return [EndedCount(way, end, code, int(total)) for way, end, code, total in rows]


def _add(session: Session, kind: str, counts: Counts) -> None:
    # In one order everywhere: two transactions that add the same must not lock each other out.
    rows = session.execute(counts).all()
    for method, outcome, error, count in sorted(tuple(row) for row in rows):
        statement = insert_into(session, Tally).values(
            kind=kind, method=method, outcome=outcome, error=error, count=count
        )
        session.execute(
            statement.on_conflict_do_update(
                index_elements=["kind", "method", "outcome", "error"],
                set_={"count": Tally.count + statement.excluded.count},
            )
        )
