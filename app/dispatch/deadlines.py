"""End what nobody comes back for: jobs that wait, or are paused, for too long."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

import structlog

from app.db.events import append_event
from app.db.repositories.execution import (
    PAUSE_ENDS_SOON,
    PausedJob,
    lock_if,
    paused_since_before,
    pending_since_before,
)
from app.db.repositories.outputs import drop_points
from app.db.session import Database
from app.db.transition import transition
from app.dispatch.isolation import isolated
from app.domain.clock import format_time
from app.domain.states import Actor, JobStatus, StopReason

log = structlog.get_logger()

PENDING_MAX = timedelta(hours=24)
PAUSED_MAX = timedelta(days=7)
PAUSED_WARNING = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class DeadlineReport:
    """What one round did."""

    warned: list[UUID] = field(default_factory=list)
    cancelled: list[UUID] = field(default_factory=list)


class Deadlines:
    """Cancels jobs that were pending for a day or paused for a week, the latter with a warning.

    A paused job that was never warned, because no service ran that day, is warned first and
    cancelled no earlier than a day later.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def run_once(self) -> DeadlineReport:
        """Warn and cancel what is due."""
        report = DeadlineReport()
        with self._database.read() as session:
            now = self._database.now(session)
            pending = pending_since_before(session, now - PENDING_MAX)
            paused = paused_since_before(session, now - PAUSED_MAX + PAUSED_WARNING)
        for job_id in pending:
            message = "What the job waited for did not come within a day."
            with isolated("deadline_failed", job_id=str(job_id)):
                self._cancel(job_id, JobStatus.PENDING, "pending_too_long", message, report)
        for job in paused:
            with isolated("deadline_failed", job_id=str(job.id)):
                self._warn_or_cancel(job, now, report)
        return report

    def _warn_or_cancel(self, job: PausedJob, now: datetime, report: DeadlineReport) -> None:
        if job.warned_at is None:
            self._warn(job, report)
        elif now >= max(job.paused_at + PAUSED_MAX, job.warned_at + PAUSED_WARNING):
            message = f"The job was paused for {PAUSED_MAX.days} days."
            self._cancel(job.id, JobStatus.PAUSED, "paused_too_long", message, report)

    def _warn(self, paused: PausedJob, report: DeadlineReport) -> None:
        with self._database.write() as session:
            if lock_if(session, paused.id, JobStatus.PAUSED) is None:
                return
            now = self._database.now(session)
            ends_at = max(paused.paused_at + PAUSED_MAX, now + PAUSED_WARNING)
            message = (
                f"The job has been paused since {format_time(paused.paused_at)}. Resume it before "
                f"{format_time(ends_at)}, or it is cancelled."
            )
            data = {"code": PAUSE_ENDS_SOON, "message": message}
            append_event(session, paused.id, "job.warning", now=now, data=data, level="warning")
        report.warned.append(paused.id)

    def _cancel(
        self, job_id: UUID, status: JobStatus, code: str, message: str, report: DeadlineReport
    ) -> None:
        with self._database.write() as session:
            job = lock_if(session, job_id, status)
            if job is None:
                return
            now = self._database.now(session)
            transition(
                session,
                job_id,
                status,
                JobStatus.CANCELLED,
                Actor.MAINTENANCE,
                now=now,
                values={"stop_requested": StopReason.CANCEL},
                data={"code": code, "message": message},
            )
            drop_points(session, job, keep_steps=0, now=now)
        report.cancelled.append(job_id)
        log.warning("deadline_passed", job_id=str(job_id), was=str(status))
