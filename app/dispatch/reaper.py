"""Find jobs whose worker is gone, and workers that nobody hears of."""

import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

import structlog

from app.db.repositories.clock import pull_back
from app.db.repositories.execution import expired_leases, lock_expired, mark_lost_workers
from app.db.session import Database
from app.dispatch.endings import Ending, EndingWriter, worker_lost
from app.dispatch.isolation import isolated
from app.dispatch.timing import Timing
from app.domain.states import Actor, AttemptOutcome, JobStatus

log = structlog.get_logger()

# A tick this much later than its period means that this process, or its host, was asleep.
LATE_FACTOR = 3.0


@dataclass(frozen=True, slots=True)
class ReapReport:
    """What one round did. `observing` says that it only renewed its own contact."""

    observing: bool = False
    jobs: dict[UUID, JobStatus] = field(default_factory=dict)
    workers: list[UUID] = field(default_factory=list)


class Reaper:
    """Ends attempts whose lease is over.

    After an outage of the database, or on a laptop that wakes up, every lease looks expired: the
    living must be given the time to renew theirs first. So a reaper acts only after one lease
    of uninterrupted contact of its own, counted anew after an error or a late tick.
    """

    def __init__(
        self, database: Database, *, timing: Timing, rng: random.Random | None = None
    ) -> None:
        self._database = database
        self._timing = timing
        self._endings = EndingWriter(timing, rng)
        self._contact: tuple[float, datetime] | None = None
        self._contact_since = 0.0

    def run_once(self) -> ReapReport:
        """Reap what is due, or only observe while the own contact is too young."""
        try:
            return self._reap() if self._in_contact() else ReapReport(observing=True)
        except Exception:
            self._contact = None
            raise

    def _in_contact(self) -> bool:
        """Note this tick; tell whether contact has lasted for one lease."""
        with self._database.read() as session:
            wall = self._database.now(session)
        tick = self._database.clock.monotonic()
        if self._contact is None or self._is_late(tick, wall, self._contact):
            self._contact_since = tick
        self._contact = (tick, wall)
        return tick - self._contact_since >= self._timing.lease_ttl_s

    def _is_late(self, tick: float, wall: datetime, last: tuple[float, datetime]) -> bool:
        # The monotonic clock stands still while a laptop sleeps; the wall clock does not.
        allowed = self._timing.reaper_s * LATE_FACTOR
        return tick - last[0] > allowed or (wall - last[1]).total_seconds() > allowed

    def _reap(self) -> ReapReport:
        report = ReapReport()
        self._correct_clock()
        with self._database.read() as session:
            due = expired_leases(session, now=self._database.now(session))
        for job_id in due:
            with isolated("reaping_failed", job_id=str(job_id)):
                status = self._end(job_id)
                if status is not None:
                    report.jobs[job_id] = status
                    log.warning("lease_expired", job_id=str(job_id), becomes=str(status))
        with self._database.write() as session:
            timeout = timedelta(seconds=self._timing.worker_timeout_s)
            seen_before = self._database.now(session) - timeout
            report.workers.extend(mark_lost_workers(session, seen_before=seen_before))
        return report

    def _correct_clock(self) -> None:
        with self._database.write() as session:
            now = self._database.now(session)
            rows = pull_back(session, now=now, lease_ttl_s=self._timing.lease_ttl_s)
        if rows:
            log.warning("clock_went_back", rows=rows)

    def _end(self, job_id: UUID) -> JobStatus | None:
        with self._database.write() as session:
            now = self._database.now(session)
            job = lock_expired(session, job_id, now=now)
            if job is None:
                return None
            failure = worker_lost("The worker stopped answering.")
            ending = Ending(AttemptOutcome.LOST, failure)
            return self._endings.end(session, job, ending, by=Actor.REAPER, now=now)
