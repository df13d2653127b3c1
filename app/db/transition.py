"""The only module that writes `jobs.status`: one function creates a job, one moves it on."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.events import NewEvent, add_to_outbox, append_event, insert_first_events
from app.db.tables import Job
from app.domain.clock import unix_ms
from app.domain.ids import new_id
from app.domain.states import LEASED, TERMINAL, Actor, JobStatus, check_transition

DISPATCH_TOPIC = "dispatch"


def create_job(
    session: Session, *, now: datetime, columns: Mapping[str, Any], warnings: Sequence[str] = ()
) -> Job:
    """Insert a queued job with its first events, and ask for dispatch: one transaction.

    `columns` holds what the request decided: everything but id, status and times. Each of
    `warnings` becomes an event.
    """
    events = [
        NewEvent("job.created"),
        NewEvent("job.queued"),
        *(NewEvent("job.warning", "warning", {"message": text}) for text in warnings),
    ]
    job = Job(
        id=new_id(unix_ms(now)),
        status=JobStatus.QUEUED,
        created_at=now,
        updated_at=now,
        queued_at=now,
        run_after=now,
        last_seq=len(events),
        version=1 + len(events),
        **columns,
    )
    session.add(job)
    session.flush()
    insert_first_events(session, job.id, events, now=now)
    add_to_outbox(session, DISPATCH_TOPIC, job.id, now=now)
    return job


def transition(
    session: Session,
    job_id: UUID,
    source: JobStatus,
    target: JobStatus,
    by: Actor,
    *,
    now: datetime,
    where: tuple[sa.ColumnElement[bool], ...] = (),
    values: Mapping[str, Any] | None = None,
    data: Mapping[str, Any] | None = None,
) -> bool:
    """Move a job from `source` to `target` if it still is in `source` and `where` holds.

    The columns that follow from the status (queue and finish times, lease, dispatch mark, phase)
    are set here, the event is appended, and dispatch is asked for where a job became runnable or
    a slot became free: all in the caller's transaction.

    Parameters
    ----------
    values
        Further columns; they win over the ones that follow from the status.
    data
        Body of the event.

    Returns
    -------
    bool
        False when the row no longer matched: somebody else changed it first.

    Raises
    ------
    InvalidState
        When the table of `app.domain.states` has no such change for `by`.
    """
    rule = check_transition(source, target, by)
    columns = {**_columns_that_follow(target, now), **(values or {})}
    changed = session.execute(
        sa.update(Job)
        .where(Job.id == job_id, Job.status == source, *where)
        .values(status=target, **columns)
        .returning(Job.id)
    ).scalar_one_or_none()
    if changed is None:
        return False
    append_event(session, job_id, rule.event, now=now, data=data)
    slot_freed = source in LEASED and target not in LEASED
    if target is JobStatus.QUEUED or slot_freed:
        add_to_outbox(session, DISPATCH_TOPIC, job_id, now=now)
    return True


def _columns_that_follow(target: JobStatus, now: datetime) -> dict[str, Any]:
    columns: dict[str, Any] = {"dispatched_at": None, "published_at": None, "updated_at": now}
    if target not in LEASED:
        columns |= {"lease_expires_at": None, "phase": None}
    if target is JobStatus.QUEUED:
        columns |= {"queued_at": now, "finished_at": None, "worker_id": None}
    if target in TERMINAL:
        columns["finished_at"] = now
    return columns
