"""Random interleavings of clients, workers, crashes and clocks keep the invariants of a job."""

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
)

from app.db.base import Base
from app.db.repositories.execution import Claim, lock_fenced
from app.db.session import Database
from app.db.tables import Job, JobAttempt, JobEvent
from app.db.transition import transition
from app.dispatch.endings import Ending, EndingWriter, close_attempt
from app.dispatch.reaper import Reaper
from app.domain.errors import JobErrorCode, JobFailure
from app.domain.states import LEASED, TERMINAL, Actor, AttemptOutcome, JobStatus
from tests.clock import FakeClock
from tests.execution import TIMING, add_worker, claim, dispatch_one, queue_job
from tests.fixtures.database import make_project

MAX_ATTEMPTS = 3
LEASE = TIMING.lease_ttl_s


class TickingClock(FakeClock):
    """Never shows the same time twice, so that order by time is order of events."""

    def now(self) -> datetime:
        self.advance(0.001)
        return super().now()


class JobLife(RuleBasedStateMachine):
    """Every claim ever made stays in the game: stale ones must not change anything."""

    messages = Bundle("messages")
    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.clock = TickingClock()
        url = f"sqlite:///{Path(self._folder.name) / 'life.db'}"
        self.database = Database(url, clock=self.clock)
        Base.metadata.create_all(self.database.engine)
        self.reaper = Reaper(self.database, timing=TIMING, rng=random.Random(0))
        self.endings = EndingWriter(TIMING, random.Random(0))
        self.jobs: list[UUID] = []
        self.final: dict[UUID, str] = {}
        self.cancelled: set[UUID] = set()

    def teardown(self) -> None:
        self.database.dispose()
        self._folder.cleanup()

    @initialize()
    def begin(self) -> None:
        self.project = make_project(self.database)
        self.workers = [add_worker(self.database) for _ in range(2)]

    @rule()
    def create(self) -> None:
        self.jobs.append(queue_job(self.database, self.project, max_attempts=MAX_ATTEMPTS))

    @rule(target=messages)
    def dispatch(self) -> Any:
        found = dispatch_one(self.database)
        return multiple() if found is None else found

    @rule(target=claims, message=messages, worker=st.integers(0, 1))
    def deliver(self, message: tuple[UUID, int], worker: int) -> Any:
        """Deliver a message, for the first time or once more."""
        found = claim(self.database, *message, self.workers[worker])
        return multiple() if found is None else found

    @rule(target=claims, worker=st.integers(0, 1), wait_s=st.sampled_from([0.0, 60.0]))
    def start(self, worker: int, wait_s: float) -> Any:
        """Run what may run next, at once or after its back-off: the common way, in one step."""
        self.clock.advance(wait_s)
        dispatched = dispatch_one(self.database)
        if dispatched is None:
            self.create()
            dispatched = dispatch_one(self.database)
        found = claim(self.database, *dispatched, self.workers[worker]) if dispatched else None
        return multiple() if found is None else found

    @rule(target=claims, held=claims)
    def hand_over(self, held: Claim) -> Any:
        """Give the job back and let the other worker go on; then `held` tries everything."""
        self.drain(held)
        successor = self.start(worker=1, wait_s=0.0)
        self.heartbeat(held)
        self.succeed(held)
        self.fail(held, retryable=True)
        return successor

    @rule(held=claims)
    def heartbeat(self, held: Claim) -> None:
        with self._untouched_if_stale(held), self.database.write() as session:
            job = lock_fenced(session, held.job_id, held.fence)
            if job is not None:
                job.lease_expires_at = self.clock.now() + timedelta(seconds=LEASE)

    @rule(held=claims)
    def succeed(self, held: Claim) -> None:
        with self._untouched_if_stale(held), self.database.write() as session:
            job = lock_fenced(session, held.job_id, held.fence)
            if job is None:
                return
            now = self.clock.now()
            moved = transition(
                session,
                held.job_id,
                JobStatus.RUNNING,
                JobStatus.SUCCEEDED,
                Actor.WORKER,
                now=now,
                where=(Job.fence == held.fence, Job.stop_requested.is_(None)),
            )
            if moved:
                close_attempt(session, job, outcome=AttemptOutcome.SUCCEEDED, now=now, columns={})

    @rule(held=claims, retryable=st.booleans())
    def fail(self, held: Claim, retryable: bool) -> None:
        failure = JobFailure(JobErrorCode.UPLOAD_FAILED, "m", "h", retryable=retryable)
        self._end(held, Ending(AttemptOutcome.FAILED, failure))

    @rule(held=claims)
    def drain(self, held: Claim) -> None:
        self._end(held, Ending(AttemptOutcome.DRAINED))

    @rule(index=st.integers(0, 20))
    def cancel(self, index: int) -> None:
        job = self._job(index)
        if job is None or job.status not in ("queued", "running"):
            return
        running = job.status == "running"
        target = JobStatus.CANCELLING if running else JobStatus.CANCELLED
        with self.database.write() as session:
            moved = transition(
                session,
                job.id,
                JobStatus(job.status),
                target,
                Actor.API,
                now=self.clock.now(),
                values={"stop_requested": "cancel"} if running else {},
            )
        assert moved
        self.cancelled.add(job.id)

    @rule(index=st.integers(0, 20))
    def retry(self, index: int) -> None:
        job = self._job(index)
        if job is None or job.status not in ("failed", "cancelled"):
            return
        raised = max(job.max_attempts, job.attempt + 1)
        with self.database.write() as session:
            transition(
                session,
                job.id,
                JobStatus(job.status),
                JobStatus.QUEUED,
                Actor.API,
                now=self.clock.now(),
                values={
                    "stop_requested": None,
                    "max_attempts": raised,
                    "failures": min(job.failures, raised - 1),
                    "run_after": self.clock.now(),
                },
            )
        self.final.pop(job.id, None)
        self.cancelled.discard(job.id)

    @rule(ticks=st.sampled_from([1, 12]))
    def reap(self, ticks: int) -> None:
        for _ in range(ticks):
            self.reaper.run_once()
            self.clock.advance(TIMING.reaper_s)

    @rule(seconds=st.sampled_from([LEASE / 2, LEASE * 2, 3600.0]), asleep=st.booleans())
    def pass_time(self, seconds: float, asleep: bool) -> None:
        """Let time pass; asleep, as on a laptop, the monotonic clock stands still."""
        if asleep:
            self.clock.jump(seconds)
        else:
            self.clock.advance(seconds)

    @invariant()
    def a_lease_is_held_by_exactly_one_open_attempt(self) -> None:
        open_attempts: dict[UUID, list[int]] = {}
        with self.database.read() as session:
            statement = sa.select(JobAttempt).where(JobAttempt.ended_at.is_(None))
            for attempt in session.execute(statement).scalars():
                open_attempts.setdefault(attempt.job_id, []).append(attempt.fence)
        for job in self._jobs():
            expected = [job.fence] if job.status in LEASED else []
            assert open_attempts.get(job.id, []) == expected

    @invariant()
    def a_final_status_stays(self) -> None:
        for job in self._jobs():
            if job.id in self.final:
                assert job.status == self.final[job.id]
            if job.status in TERMINAL:
                self.final[job.id] = job.status

    @invariant()
    def a_cancelled_job_never_succeeds_or_runs_again(self) -> None:
        for job in self._jobs():
            if job.id in self.cancelled:
                assert job.status in ("cancelling", "cancelled")

    @invariant()
    def no_more_attempts_fail_than_are_allowed(self) -> None:
        for job in self._jobs():
            assert job.failures <= job.max_attempts
            assert job.failures < job.max_attempts or job.status in TERMINAL

    @invariant()
    def events_are_numbered_without_a_gap(self) -> None:
        with self.database.read() as session:
            for job in self._jobs():
                statement = sa.select(JobEvent.seq).where(JobEvent.job_id == job.id)
                numbers = session.execute(statement.order_by(JobEvent.seq)).scalars().all()
                assert numbers == list(range(1, job.last_seq + 1))

    @contextmanager
    def _untouched_if_stale(self, held: Claim) -> Iterator[None]:
        """Check that a claim whose fence is not the job's own changes nothing."""
        before = self._visible(held.job_id)
        yield
        if before[0] != held.fence:
            assert self._visible(held.job_id) == before

    def _visible(self, job_id: UUID) -> tuple[object, ...]:
        with self.database.read() as session:
            job = session.execute(sa.select(Job).where(Job.id == job_id)).scalar_one()
            return job.fence, job.status, job.version, job.lease_expires_at, job.failures

    def _end(self, held: Claim, ending: Ending) -> None:
        with self._untouched_if_stale(held), self.database.write() as session:
            job = lock_fenced(session, held.job_id, held.fence)
            if job is not None:
                self.endings.end(session, job, ending, by=Actor.WORKER, now=self.clock.now())

    def _jobs(self) -> list[Job]:
        with self.database.read() as session:
            return list(session.execute(sa.select(Job)).scalars())

    def _job(self, index: int) -> Job | None:
        jobs = self._jobs()
        return jobs[index % len(jobs)] if jobs else None


TestJobLife = JobLife.TestCase
TestJobLife.settings = settings(
    max_examples=30,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
