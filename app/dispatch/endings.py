"""Close an attempt that did not succeed, and move its job on: one transaction, three callers.

The worker's child ends its own attempt, its parent that of a child which died, and the reaper
that of a worker nobody hears of.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.repositories.outputs import drop_points
from app.db.tables import Job, JobAttempt
from app.db.transition import transition
from app.dispatch.timing import Timing
from app.domain.errors import JobErrorCode, JobFailure
from app.domain.retries import Fate, JobBudget, fate_after
from app.domain.states import Actor, AttemptOutcome, JobStatus, StopReason
from app.domain.text import storable

BACKOFF_JITTER = 0.2


@dataclass(frozen=True, slots=True)
class Ending:
    """How an attempt ended. `measured` holds further columns of its row (peaks, seconds)."""

    outcome: AttemptOutcome
    failure: JobFailure | None = None
    exit_code: int | None = None
    signal: int | None = None
    measured: dict[str, Any] = field(default_factory=dict)
    retry_delay_s: float | None = None


class EndingWriter:
    """Writes endings, with the back-off of this deployment."""

    def __init__(self, timing: Timing, rng: random.Random | None = None) -> None:
        self._timing = timing
        self._rng = rng or random.Random()

    def end(
        self,
        session: Session,
        job: Job,
        ending: Ending,
        *,
        by: Actor,
        now: datetime,
        where: Sequence[sa.ColumnElement[bool]] = (),
    ) -> JobStatus | None:
        """Close the running attempt of `job`, whose row the caller holds locked.

        Returns
        -------
        JobStatus or None
            What became of the job; None when it had changed hands already.
        """
        fate = self._fate(session, job, ending)
        error = _job_error(job, ending)
        moved = transition(
            session,
            job.id,
            JobStatus(job.status),
            fate.status,
            by,
            now=now,
            where=(Job.fence == job.fence, *where),
            values=self._job_values(fate, ending, error, now),
            data=_event_data(fate, ending, error),
        )
        if not moved:
            return None
        columns = {"error": error, "exit_code": ending.exit_code, "signal": ending.signal}
        close_attempt(
            session, job, outcome=ending.outcome, now=now, columns=columns | ending.measured
        )
        if fate.status is JobStatus.CANCELLED and not job.keep_checkpoint:
            drop_points(session, job, keep_steps=0, now=now)
        return fate.status

    def _fate(self, session: Session, job: Job, ending: Ending) -> Fate:
        budget = JobBudget(
            failures=job.failures,
            max_attempts=job.max_attempts,
            stop_requested=StopReason(job.stop_requested) if job.stop_requested else None,
            host_oom_failures=_count_host_oom(session, job),
        )
        failure = ending.failure
        return fate_after(
            ending.outcome,
            budget,
            code=failure.code if failure else None,
            retryable=failure is None or failure.retryable,
        )

    def _job_values(
        self, fate: Fate, ending: Ending, error: dict[str, Any] | None, now: datetime
    ) -> dict[str, Any]:
        values: dict[str, Any] = {"failures": fate.failures, "progress": None}
        if fate.status in (JobStatus.PAUSED, JobStatus.FAILED):
            values["stop_requested"] = None  # done, or nothing left to pause
        if fate.status is JobStatus.QUEUED:
            values["run_after"] = now + timedelta(seconds=self._delay_s(fate, ending))
        if fate.status is not JobStatus.CANCELLED:
            # Shown while the job waits for its next attempt, too: it says why there is one.
            values["error"] = error
        return values

    def _delay_s(self, fate: Fate, ending: Ending) -> float:
        if ending.retry_delay_s is not None:
            return ending.retry_delay_s
        if ending.failure is None and ending.outcome is not AttemptOutcome.LOST:
            return 0.0
        jitter = self._rng.uniform(1 - BACKOFF_JITTER, 1 + BACKOFF_JITTER)
        return self._timing.backoff(fate.failures) * jitter


def worker_lost(detail: str) -> JobFailure:
    """Describe an attempt whose process went away."""
    return JobFailure(
        JobErrorCode.WORKER_LOST,
        detail,
        "The job is tried again while attempts are left. If it happens every time, look into the "
        "worker's own log for what ends the process.",
        retryable=True,
    )


def _job_error(job: Job, ending: Ending) -> dict[str, Any] | None:
    failure = ending.failure
    if failure is None:
        return None
    error: dict[str, Any] = {
        "code": str(failure.code),
        "message": storable(failure.message),
        "hint": storable(failure.hint),
        "retryable": failure.retryable,
        "attempt": job.attempt,
        "phase": job.phase,
        "exit_code": ending.exit_code,
        "signal": ending.signal,
    }
    if failure.fields:
        error["fields"] = dict(failure.fields)
    return error


def _event_data(fate: Fate, ending: Ending, error: dict[str, Any] | None) -> dict[str, Any]:
    data: dict[str, Any] = {"outcome": str(ending.outcome), "failures": fate.failures}
    if error is not None:
        data["error"] = {key: error[key] for key in ("code", "message", "phase", "attempt")}
    return data


def close_attempt(
    session: Session,
    job: Job,
    *,
    outcome: AttemptOutcome,
    now: datetime,
    columns: Mapping[str, Any],
) -> None:
    """Write the outcome of the job's running attempt, with further columns of its row."""
    session.execute(
        sa.update(JobAttempt)
        .where(
            JobAttempt.job_id == job.id,
            JobAttempt.fence == job.fence,
            JobAttempt.ended_at.is_(None),
        )
        .values(ended_at=now, outcome=outcome, **columns)
    )


def _count_host_oom(session: Session, job: Job) -> int:
    errors = session.execute(
        sa.select(JobAttempt.error).where(
            JobAttempt.job_id == job.id, JobAttempt.error.is_not(None)
        )
    ).scalars()
    return sum(1 for error in errors if error and error.get("code") == JobErrorCode.OOM_HOST)
