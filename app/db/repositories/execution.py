"""Statements of dispatch, claim, heartbeat and reaping, the same on both databases.

Workers and maintenance loops serve all projects, so these do not filter by project.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session, aliased

from app.db.tables import IS_LEASED, Job, JobAttempt, JobCheckpoint, JobEvent, Worker
from app.db.transition import transition
from app.db.types import UtcTime
from app.domain.clock import unix_ms
from app.domain.ids import new_id
from app.domain.states import LEASED, Actor, JobStatus, Phase

# Code of the warning that a job has been paused for long.
PAUSE_ENDS_SOON = "pause_ends_soon"

# Any constant will do; all dispatchers of one database must use the same.
_DISPATCH_LOCK = 0x6576656E68616E64

# The project with the smallest share of slots for its weight is next, and of its jobs the one of
# highest priority, then age. Both are one step into `ix_jobs_line`, whose columns all ascend
# (SQLite cannot tell of others), hence the two look-ups; the backlog is never sorted.
_PICK_NEXT = (
    sa.text(
        """
    SELECT j.id FROM (
      SELECT coalesce(r.n, 0) * 1.0 / p.weight AS share,
        (SELECT f.id FROM jobs f
         WHERE f.status = 'queued' AND f.project_id = p.id AND f.device_class = :device_class
           AND f.dispatched_at IS NULL AND f.run_after <= :now
           AND f.priority =
             (SELECT h.priority FROM jobs h
              WHERE h.status = 'queued' AND h.project_id = p.id AND h.device_class = :device_class
                AND h.dispatched_at IS NULL AND h.run_after <= :now
              ORDER BY h.priority DESC LIMIT 1)
         ORDER BY f.queued_at, f.id LIMIT 1) AS job_id
      FROM projects p
        LEFT JOIN (SELECT s.project_id, count(*) AS n FROM
                     (SELECT project_id FROM jobs WHERE status IN ('running', 'cancelling')
                      UNION ALL
                      SELECT project_id FROM jobs WHERE dispatched_at IS NOT NULL) s
                   GROUP BY s.project_id) r ON r.project_id = p.id
      WHERE coalesce(r.n, 0) < p.max_running AND NOT p.suspended
    ) first JOIN jobs j ON j.id = first.job_id
    ORDER BY first.share, j.priority DESC, j.queued_at, j.id
    LIMIT 1
    """
    )
    .bindparams(sa.bindparam("now", type_=UtcTime))
    .columns(id=sa.Uuid)
)


@dataclass(frozen=True, slots=True)
class DispatchedJob:
    """One message to publish."""

    job_id: UUID
    dispatch: int
    device_class: str


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """Who claims: the worker's row, and the process that does the work."""

    id: UUID
    host: str
    pid: int


@dataclass(frozen=True, slots=True)
class Claim:
    """A job that is ours, with the token that every later write must carry."""

    job_id: UUID
    project_id: UUID
    fence: int
    attempt: int
    attempt_id: UUID
    dispatch: int
    name: str | None
    spec_hash: str
    resolved_spec: dict[str, Any]
    max_runtime_s: int
    keep_checkpoint: bool
    request_id: str | None


@dataclass(frozen=True, slots=True)
class Pulse:
    """What a heartbeat learns of the job: somebody may want it to stop."""

    status: JobStatus
    stop_requested: str | None
    worker_state: str | None


@dataclass(frozen=True, slots=True)
class PausedJob:
    """A job that somebody paused, and may have forgotten."""

    id: UUID
    paused_at: datetime
    warned_at: datetime | None


def lock_dispatch(session: Session) -> None:
    """Let one dispatcher at a time decide. On SQLite, BEGIN IMMEDIATE has done it already."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(sa.select(sa.func.pg_advisory_xact_lock(_DISPATCH_LOCK)))


def dispatch_next(session: Session, device_class: str, *, now: datetime) -> DispatchedJob | None:
    """Mark the job that is to run next as dispatched; None where no job may run now.

    The counts by which projects share are fixed per statement, so that each slot takes one.
    """
    while True:
        picked = session.execute(_PICK_NEXT, {"device_class": device_class, "now": now})
        job_id = picked.scalar_one_or_none()
        if job_id is None:
            return None
        dispatch = session.execute(
            sa.update(Job)
            .where(Job.id == job_id, Job.status == JobStatus.QUEUED)
            .values(dispatched_at=now, dispatch=Job.dispatch + 1, published_at=None)
            .returning(Job.dispatch)
        ).scalar_one_or_none()
        # A job that was cancelled between the two statements is not picked again.
        if dispatch is not None:
            return DispatchedJob(job_id, dispatch, device_class)


def live_workers(session: Session, *, seen_since: datetime) -> list[tuple[list[str], bool]]:
    """List the live workers: the classes each serves, and whether it could take a job now."""
    busy = sa.exists().where(Job.worker_id == Worker.id, IS_LEASED)
    takes_jobs = ~Worker.disk_low & ~Worker.drain_requested
    rows = session.execute(
        sa.select(
            Worker.classes, sa.and_(~busy, Worker.current_job_id.is_(None), takes_jobs)
        ).where(Worker.state == "ready", Worker.last_seen_at >= seen_since)
    )
    return [(list(classes), bool(idle)) for classes, idle in rows]


def count_dispatched(session: Session) -> dict[str, int]:
    """Count the jobs that are dispatched and not yet claimed, by device class."""
    rows = session.execute(
        sa.select(Job.device_class, sa.func.count())
        .where(Job.status == JobStatus.QUEUED, Job.dispatched_at.is_not(None))
        .group_by(Job.device_class)
    )
    return dict(rows.all())


def jobs_are_moving(session: Session) -> bool:
    """Tell whether any job runs or waits for its turn."""
    moving = sa.or_(sa.exists().where(Job.status == JobStatus.QUEUED), sa.exists().where(IS_LEASED))
    return bool(session.execute(sa.select(moving)).scalar_one())


def find_unclaimed(
    session: Session, device_class: str, *, sent_before: datetime
) -> list[DispatchedJob]:
    """List jobs whose message, sent before that moment, nobody has claimed."""
    sent_at = sa.func.coalesce(Job.published_at, Job.dispatched_at, type_=UtcTime)
    rows = session.execute(
        sa.select(Job.id, Job.dispatch)
        .where(
            Job.status == JobStatus.QUEUED,
            Job.dispatched_at.is_not(None),
            Job.device_class == device_class,
            sent_at < sent_before,
        )
        .order_by(Job.dispatched_at, Job.id)
    )
    return [DispatchedJob(job_id, dispatch, device_class) for job_id, dispatch in rows]


def mark_published(session: Session, job: DispatchedJob, *, now: datetime) -> None:
    """Note that the broker has the message of this dispatch."""
    session.execute(_unclaimed(job.job_id, job.dispatch).values(published_at=now))


def clear_dispatch(
    session: Session, job_id: UUID, dispatch: int, *, run_after: datetime | None = None
) -> bool:
    """Take a dispatched job that nobody claimed back into the backlog."""
    values: dict[str, Any] = {"dispatched_at": None, "published_at": None}
    if run_after is not None:
        values["run_after"] = run_after
    cleared = session.execute(_unclaimed(job_id, dispatch).values(**values).returning(Job.id))
    return cleared.scalar_one_or_none() is not None


def claim_job(
    session: Session,
    job_id: UUID,
    dispatch: int,
    *,
    worker: WorkerIdentity,
    now: datetime,
    lease_ttl_s: float,
) -> Claim | None:
    """Take the job; the fence rises by one. None: the message was old, or a second copy."""
    claimed = transition(
        session,
        job_id,
        JobStatus.QUEUED,
        JobStatus.RUNNING,
        Actor.WORKER,
        now=now,
        where=(Job.dispatched_at.is_not(None), Job.dispatch == dispatch, Job.run_after <= now),
        values={
            "fence": Job.fence + 1,
            "attempt": Job.attempt + 1,
            "worker_id": worker.id,
            "lease_expires_at": now + timedelta(seconds=lease_ttl_s),
            "started_at": sa.func.coalesce(Job.started_at, now, type_=UtcTime),
            "phase": Phase.PREPARING,
            "progress": None,
            "error": None,
        },
        data={"worker": worker.host},
    )
    if not claimed:
        return None
    job = session.execute(sa.select(Job).where(Job.id == job_id)).scalar_one()
    session.refresh(job)
    _forget_checkpoints_if_asked(session, job, now)
    attempt_id = _insert_attempt(session, job, worker, now)
    set_current_job(session, worker.id, job_id)
    return _describe(job, attempt_id)


def lock_fenced(session: Session, job_id: UUID, fence: int) -> Job | None:
    """Lock the job for a write of the attempt that holds `fence`; None: it is no longer ours."""
    return session.execute(
        sa.select(Job)
        .where(Job.id == job_id, Job.fence == fence, Job.status.in_(LEASED))
        .with_for_update()
        .execution_options(populate_existing=True)
    ).scalar_one_or_none()


def read_pulse(session: Session, job_id: UUID, fence: int) -> Pulse | None:
    """Read whether somebody wants the attempt to stop; None: the job is no longer ours."""
    row = session.execute(
        sa.select(Job.status, Job.stop_requested, Worker.state)
        .outerjoin(Worker, Worker.id == Job.worker_id)
        .where(Job.id == job_id, Job.fence == fence, Job.status.in_(LEASED))
    ).one_or_none()
    return None if row is None else Pulse(JobStatus(row[0]), row[1], row[2])


def expired_leases(session: Session, *, now: datetime, limit: int = 100) -> list[UUID]:
    """List jobs whose worker has not renewed the lease in time."""
    rows = session.execute(
        sa.select(Job.id)
        .where(IS_LEASED, Job.lease_expires_at < now)
        .order_by(Job.lease_expires_at)
        .limit(limit)
    )
    return list(rows.scalars())


def lock_expired(session: Session, job_id: UUID, *, now: datetime) -> Job | None:
    """Lock one job whose lease is over; None when it was renewed or another reaper has it."""
    return session.execute(
        sa.select(Job)
        .where(Job.id == job_id, Job.status.in_(LEASED), Job.lease_expires_at < now)
        .with_for_update(skip_locked=True)
    ).scalar_one_or_none()


def pending_since_before(session: Session, moment: datetime) -> list[UUID]:
    """List jobs that have waited for something else since before `moment`."""
    waiting = sa.select(Job.id).where(Job.status == JobStatus.PENDING, Job.created_at < moment)
    return list(session.execute(waiting).scalars())


def paused_since_before(session: Session, moment: datetime) -> list[PausedJob]:
    """List jobs that were paused before `moment`, and when they were warned of their end."""
    paused, warning = aliased(JobEvent), aliased(JobEvent)
    paused_at = (
        sa.select(paused.at)
        .where(paused.job_id == Job.id, paused.type == "job.paused")
        .order_by(paused.seq.desc())
        .limit(1)
        .scalar_subquery()
    )
    warned_at = (
        sa.select(warning.at)
        .where(
            warning.job_id == Job.id,
            warning.type == "job.warning",
            warning.data["code"].as_string() == PAUSE_ENDS_SOON,
            warning.at > paused_at,
        )
        .order_by(warning.seq.desc())
        .limit(1)
        .scalar_subquery()
    )
    rows = session.execute(
        sa.select(Job.id, paused_at, warned_at).where(
            Job.status == JobStatus.PAUSED, paused_at < moment
        )
    )
    return [PausedJob(*row) for row in rows]


def lock_if(session: Session, job_id: UUID, status: JobStatus) -> Job | None:
    """Lock a job that still has this status; None when it moved on or somebody else has it."""
    return session.execute(
        sa.select(Job)
        .where(Job.id == job_id, Job.status == status)
        .with_for_update(skip_locked=True)
    ).scalar_one_or_none()


def set_current_job(session: Session, worker_id: UUID, job_id: UUID) -> None:
    """Note what the worker does: it is no free slot until its next child is ready."""
    session.execute(sa.update(Worker).where(Worker.id == worker_id).values(current_job_id=job_id))


def mark_lost_workers(session: Session, *, seen_before: datetime) -> list[UUID]:
    """Mark workers that were not seen for long as lost."""
    rows = session.execute(
        sa.update(Worker)
        .where(Worker.state.in_(("ready", "draining")), Worker.last_seen_at < seen_before)
        .values(state="lost", current_job_id=None)
        .returning(Worker.id)
    )
    return list(rows.scalars())


def _unclaimed(job_id: UUID, dispatch: int) -> sa.Update:
    return sa.update(Job).where(
        Job.id == job_id, Job.status == JobStatus.QUEUED, Job.dispatch == dispatch
    )


def _forget_checkpoints_if_asked(session: Session, job: Job, now: datetime) -> None:
    if job.restart_from != "start":
        return
    session.execute(
        sa.update(JobCheckpoint)
        .where(JobCheckpoint.job_id == job.id, JobCheckpoint.deleted_at.is_(None))
        .values(deleted_at=now)
    )
    job.restart_from = "checkpoint"


def _insert_attempt(session: Session, job: Job, worker: WorkerIdentity, now: datetime) -> UUID:
    attempt_id = new_id(unix_ms(now))
    session.add(
        JobAttempt(
            id=attempt_id,
            created_at=now,
            project_id=job.project_id,
            job_id=job.id,
            number=job.attempt,
            fence=job.fence,
            worker_id=worker.id,
            host=worker.host,
            pid=worker.pid,
            device=session.execute(
                sa.select(Worker.device).where(Worker.id == worker.id)
            ).scalar_one_or_none(),
            started_at=now,
        )
    )
    session.flush()
    return attempt_id


def _describe(job: Job, attempt_id: UUID) -> Claim:
    return Claim(
        job_id=job.id,
        project_id=job.project_id,
        fence=job.fence,
        attempt=job.attempt,
        attempt_id=attempt_id,
        dispatch=job.dispatch,
        name=job.name,
        spec_hash=job.spec_hash,
        resolved_spec=job.resolved_spec,
        max_runtime_s=job.max_runtime_s,
        keep_checkpoint=job.keep_checkpoint,
        request_id=job.created_request_id,
    )
