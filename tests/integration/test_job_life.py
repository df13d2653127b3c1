"""Random interleavings of clients, workers, crashes and clocks keep the promises of a job."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
import structlog
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from app.domain.states import LEASED, TERMINAL, TRANSITIONS, JobStatus, Phase
from tests.execution import TIMING
from tests.job_world import MAX_RUNNING, WORKERS, JobWorld, SteppedAttempt

ANY = st.integers(0, 99)
SLOT = st.integers(0, WORKERS - 1)
ACTIONS = ("cancel", "pause", "resume", "retry", "delete", "patch")
# By the event that records a change and the status before it: the status after it.
MOVES = {(rule.event, source): target for (source, target), rule in TRANSITIONS.items()}
NOT_MOVES = {
    "job.phase", "job.progress", "job.checkpoint", "job.warning", "job.pausing",
    "artifact.created", "evaluation.completed",
}  # fmt: skip


class JobLife(RuleBasedStateMachine):
    """Every attempt ever begun and every message ever sent stay in the game."""

    def __init__(self) -> None:
        super().__init__()
        self.world = JobWorld()
        self.world.create()
        self.cancelled: set[UUID] = set()
        self.final: dict[UUID, str] = {}

    def teardown(self) -> None:
        try:
            self.world.settle()
            self.check_rows()
            for _, status, *_ in self.job_rows():
                assert status in TERMINAL or status == JobStatus.PAUSED
        finally:
            self.world.close()

    # Clients

    @rule()
    def create(self) -> None:
        self.world.create()

    @rule(index=ANY, action=st.sampled_from(ACTIONS))
    def ask(self, index: int, action: str) -> None:
        job_id = self.world.jobs[index % len(self.world.jobs)]
        if job_id not in self.deleted() and self.world.ask(action, job_id):
            if action == "cancel":
                self.cancelled.add(job_id)
            if action == "retry":
                self.cancelled.discard(job_id)
                self.final.pop(job_id, None)

    # Dispatch

    @rule(
        dispatcher=st.integers(0, 1),
        down=st.sampled_from([False, False, False, True]),
        crash=st.sampled_from([None, None, "before", "after"]),
    )
    def dispatch(self, dispatcher: int, down: bool, crash: str | None) -> None:
        self.world.dispatch(dispatcher, down=down, crash=crash)

    @rule()
    def relay(self) -> None:
        self.world.relay_once()

    # Workers

    @rule(slot=SLOT)
    def begin(self, slot: int) -> None:
        """The common way, in one step: dispatch, deliver, and show a first sign of life."""
        self.world.next_child(slot)
        self.world.dispatch(0, down=False, crash=None)
        if self.world.broker.messages:
            attempt = self.world.deliver(len(self.world.broker.messages) - 1, slot)
            if attempt is not None:
                attempt.beat()

    @precondition(lambda self: self.world.broker.messages)
    @rule(message=ANY, slot=SLOT)
    def deliver(self, message: int, slot: int) -> None:
        self.world.deliver(message, slot)

    @rule(slot=SLOT)
    def report(self, slot: int) -> None:
        self.world.report(slot)

    @precondition(lambda self: self.world.attempts)
    @rule(index=ANY)
    def beat(self, index: int) -> None:
        with self.changes_nothing_if_stale(index) as attempt:
            attempt.beat()

    @precondition(lambda self: self.world.attempts)
    @rule(index=ANY, phase=st.sampled_from(list(Phase)))
    def enter(self, index: int, phase: Phase) -> None:
        with self.changes_nothing_if_stale(index) as attempt:
            attempt.enter(phase)
            attempt.beat()

    @precondition(lambda self: self.world.attempts)
    @rule(index=ANY, step=st.integers(1, 3))
    def keep_point(self, index: int, step: int) -> None:
        with self.changes_nothing_if_stale(index) as attempt:
            attempt.keep_point(step)

    @precondition(lambda self: self.world.attempts)
    @rule(index=ANY)
    def succeed(self, index: int) -> None:
        with self.changes_nothing_if_stale(index) as attempt:
            attempt.succeed()

    @precondition(lambda self: self.world.attempts)
    @rule(index=ANY, retryable=st.booleans())
    def fail(self, index: int, retryable: bool) -> None:
        with self.changes_nothing_if_stale(index) as attempt:
            attempt.fail(retryable=retryable)

    @precondition(lambda self: self.world.attempts)
    @rule(index=ANY)
    def stop(self, index: int) -> None:
        with self.changes_nothing_if_stale(index) as attempt:
            attempt.beat()
            if attempt.told_to_stop:
                attempt.stop()

    @precondition(lambda self: self.world.attempts)
    @rule(index=ANY)
    def child_dies(self, index: int) -> None:
        with self.changes_nothing_if_stale(index) as attempt:
            self.world.notice_death(attempt)

    @precondition(lambda self: self.world.attempts)
    @rule(index=ANY, slot=SLOT, last=st.sampled_from(["beat", "point", "succeed", "fail", "die"]))
    def overtake(self, index: int, slot: int, last: str) -> None:
        """A worker sleeps past its lease, another takes the job over, and the first wakes up."""
        self.reap(12)
        self.world.clock.advance(TIMING.backoff_max_s)
        self.world.report(slot)
        self.begin(slot)
        deeds: dict[str, Callable[[SteppedAttempt], None]] = {
            "beat": SteppedAttempt.beat,
            "point": lambda attempt: attempt.keep_point(1),
            "succeed": SteppedAttempt.succeed,
            "fail": lambda attempt: attempt.fail(retryable=True),
            "die": self.world.notice_death,
        }
        with self.changes_nothing_if_stale(index) as attempt:
            deeds[last](attempt)

    @rule(slot=SLOT)
    def worker_dies(self, slot: int) -> None:
        self.world.kill_worker(slot)

    @rule(slot=SLOT, killed=st.booleans())
    def drain(self, slot: int, killed: bool) -> None:
        self.world.drain(slot, killed=killed)

    # Time

    @rule(ticks=st.sampled_from([1, 12]))
    def reap(self, ticks: int) -> None:
        for _ in range(ticks):
            self.world.reaper.run_once()
            self.world.clock.advance(TIMING.reaper_s)

    @rule(days=st.sampled_from([0, 1, 7]))
    def meet_deadlines(self, days: int) -> None:
        self.world.clock.advance(days * 24 * 3600.0)
        self.world.deadlines.run_once()

    @rule(seconds=st.sampled_from([TIMING.lease_ttl_s / 2, TIMING.lease_ttl_s * 2, 3600.0]))
    def pass_time(self, seconds: float) -> None:
        self.world.clock.advance(seconds)

    @rule(seconds=st.sampled_from([-3600.0, -TIMING.lease_ttl_s, TIMING.lease_ttl_s * 2, 3600.0]))
    def jump(self, seconds: float) -> None:
        """Only the wall clock moves: a laptop wakes up, or somebody sets the time."""
        self.world.clock.jump(seconds)

    # What must hold after every step

    @invariant()
    def check_rows(self) -> None:
        open_attempts = self.open_attempts()
        occupied = 0
        for job_id, status, failures, max_attempts, fence, last_seq, dispatched in self.job_rows():
            held = [fence] if status in LEASED else []
            assert open_attempts.get(job_id, []) == held
            assert failures <= max_attempts
            assert failures < max_attempts or status in TERMINAL
            if job_id in self.cancelled:
                assert status in ("cancelling", "cancelled")
            assert self.final.get(job_id, status) == status
            if status in TERMINAL:
                self.final[job_id] = status
            occupied += status in LEASED or dispatched is not None
            self.check_history(job_id, status, last_seq)
        assert occupied <= MAX_RUNNING

    def check_history(self, job_id: UUID, status: str, last_seq: int) -> None:
        """The events are gapless, lead to the status by the table, and asked for dispatch."""
        query = "SELECT seq, type FROM job_events WHERE job_id = ? ORDER BY seq"
        events = self.world.rows.execute(query, [job_id.hex]).fetchall()
        assert [seq for seq, _ in events] == list(range(1, last_seq + 1))
        assert [kind for _, kind in events[:2]] == ["job.created", "job.queued"]
        at, asked = JobStatus.QUEUED, 1
        for _, kind in events[2:]:
            if kind in NOT_MOVES or (kind == "job.resumed" and at is not JobStatus.PAUSED):
                continue
            source, at = at, MOVES[kind, at]
            asked += at is JobStatus.QUEUED or (source in LEASED and at not in LEASED)
        assert at == status
        assert Counter(kind for _, kind in events)["job.succeeded"] == (status == "succeeded")
        query = "SELECT count(*) FROM outbox WHERE topic = 'dispatch' AND aggregate_id = ?"
        assert self.world.rows.execute(query, [job_id.hex]).fetchone() == (asked,)

    @contextmanager
    def changes_nothing_if_stale(self, index: int) -> Iterator[SteppedAttempt]:
        attempt = self.world.attempts[index % len(self.world.attempts)]
        job_id = attempt.claim.job_id
        before = self.everything_of(job_id)
        yield attempt
        if before[0][0] != attempt.claim.fence or before[0][1] not in LEASED:
            assert self.everything_of(job_id) == before

    def everything_of(self, job_id: UUID) -> list[Any]:
        rows = self.world.rows
        job = rows.execute("SELECT fence, status, * FROM jobs WHERE id = ?", [job_id.hex])
        counted = ("job_attempts", "job_events", "checkpoints", "artifacts", "evaluation_results")
        counts = [
            rows.execute(f"SELECT count(*) FROM {name} WHERE job_id = ?", [job_id.hex]).fetchone()
            for name in counted
        ]
        return [job.fetchone(), *counts]

    def job_rows(self) -> list[tuple[Any, ...]]:
        found = self.world.rows.execute(
            "SELECT id, status, failures, max_attempts, fence, last_seq, dispatched_at FROM jobs"
        )
        return [(UUID(row[0]), *row[1:]) for row in found]

    def open_attempts(self) -> dict[UUID, list[int]]:
        found: dict[UUID, list[int]] = {}
        query = "SELECT job_id, fence FROM job_attempts WHERE ended_at IS NULL"
        for job_id, fence in self.world.rows.execute(query):
            found.setdefault(UUID(job_id), []).append(fence)
        return found

    def deleted(self) -> set[UUID]:
        found = self.world.rows.execute("SELECT id FROM jobs WHERE deleted_at IS NOT NULL")
        return {UUID(row[0]) for row in found}


def tries(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of lines of log would be kept, and say nothing that a failing example does not."""
    with structlog.testing.capture_logs(processors=[_drop]):
        yield


def _drop(_logger: object, _name: str, _event: object) -> Any:
    raise structlog.DropEvent


@pytest.mark.usefixtures("quiet")
class TestJobLife(JobLife.TestCase):  # type: ignore[name-defined,misc]
    settings = tries(15, 20)


@pytest.mark.slow
class TestJobLifeAtLength(JobLife.TestCase):  # type: ignore[name-defined,misc]
    settings = tries(1000, 50)
