from collections.abc import Callable

import pytest

from app.db.repositories.execution import Pulse
from app.domain.states import JobStatus
from tests.clock import FakeClock
from tests.execution import TIMING
from workers.attempt.journal import DatabaseUnreachable, Fenced
from workers.heartbeat import Activity, Heartbeat, Limits, StopCause, StopSwitch

CALM = Pulse(JobStatus.RUNNING, None, "ready")


class ScriptedJournal:
    """Answers a beat with whatever the test wants; keeps what was asked."""

    def __init__(self) -> None:
        self.answer: Pulse | Exception = CALM
        self.renewals: list[bool] = []
        self.warnings: list[str] = []

    def beat(self, *, renew: bool) -> Pulse:
        self.renewals.append(renew)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def warn(self, code: str, _message: str) -> None:
        self.warnings.append(code)


class Rig:
    """A heartbeat that beats when told to."""

    def __init__(
        self, *, max_runtime_s: float = 600, stall_timeout_s: float = 600, orphaned: bool = False
    ) -> None:
        self.clock = FakeClock()
        self.journal = ScriptedJournal()
        self.switch = StopSwitch(self.clock)
        self.activity = Activity(self.clock)
        self.gave_up: list[StopCause | None] = []
        self.heartbeat = Heartbeat(
            self.journal,  # type: ignore[arg-type]
            self.switch,
            self.activity,
            limits=Limits(max_runtime_s, stall_timeout_s),
            timing=TIMING,
            clock=self.clock,
            give_up=self.gave_up.append,
            is_orphaned=lambda: orphaned,
        )

    def tick(self, *, after_s: float = 0.0) -> None:
        self.clock.advance(after_s)
        self.heartbeat.tick()


def test_the_lease_is_renewed_once_a_period_and_not_with_every_look() -> None:
    rig = Rig()

    for _ in range(40):
        rig.tick(after_s=TIMING.heartbeat_s / 10)

    assert 3 <= sum(rig.journal.renewals) <= 4


@pytest.mark.parametrize(
    ("pulse", "cause"),
    [
        (Pulse(JobStatus.CANCELLING, "cancel", "ready"), StopCause.CANCEL),
        (Pulse(JobStatus.RUNNING, "pause", "ready"), StopCause.PAUSE),
        (Pulse(JobStatus.RUNNING, None, "draining"), StopCause.DRAIN),
    ],
)
def test_a_wish_in_the_database_reaches_the_engine(pulse: Pulse, cause: StopCause) -> None:
    rig = Rig()
    rig.journal.answer = pulse

    rig.tick()

    assert rig.switch.cause is cause
    assert rig.gave_up == []


def test_an_engine_that_does_not_stop_within_its_grace_is_given_up() -> None:
    rig = Rig()
    rig.journal.answer = Pulse(JobStatus.CANCELLING, "cancel", "ready")
    rig.tick()

    rig.tick(after_s=TIMING.stop_grace_s)

    assert rig.gave_up == [StopCause.CANCEL]


def test_a_fenced_attempt_is_given_up_at_once() -> None:
    rig = Rig()
    rig.journal.answer = Fenced()

    rig.tick()

    assert rig.gave_up == [None]


def test_the_run_time_limit_stops_the_engine() -> None:
    rig = Rig(max_runtime_s=10)

    rig.tick(after_s=9)
    early = rig.switch.cause
    rig.tick(after_s=1)

    assert (early, rig.switch.cause) == (None, StopCause.TIMEOUT)


def test_an_engine_without_progress_is_warned_of_and_then_stopped() -> None:
    rig = Rig(stall_timeout_s=10)

    for _ in range(3):
        rig.tick(after_s=3)
    warned = list(rig.journal.warnings)
    rig.tick(after_s=1)

    assert warned == ["no_progress"]
    assert rig.switch.cause is StopCause.STALL


def test_progress_starts_the_stall_limit_anew() -> None:
    rig = Rig(stall_timeout_s=10)

    for _ in range(5):
        rig.tick(after_s=4)
        rig.activity.touch()

    assert rig.switch.cause is None


def test_a_short_outage_of_the_database_does_not_stop_the_work() -> None:
    rig = Rig()
    rig.journal.answer = DatabaseUnreachable("down")

    rig.tick()
    rig.tick(after_s=TIMING.outage_stop_s - 1)
    rig.journal.answer = CALM
    rig.tick()
    rig.journal.answer = DatabaseUnreachable("down again")
    rig.tick(after_s=2)

    assert rig.switch.cause is None


def test_a_long_outage_of_the_database_stops_the_work() -> None:
    rig = Rig()
    rig.journal.answer = DatabaseUnreachable("down")

    rig.tick()
    rig.tick(after_s=TIMING.outage_stop_s)

    assert rig.switch.cause is StopCause.OUTAGE


def test_the_child_of_a_dead_worker_drains() -> None:
    rig = Rig(orphaned=True)

    rig.tick()

    assert rig.switch.cause is StopCause.DRAIN


def test_a_cancel_replaces_a_drain_but_nothing_replaces_a_cancel() -> None:
    switch = StopSwitch(FakeClock())
    order: list[Callable[[], None]] = [
        lambda: switch.ask(StopCause.DRAIN),
        lambda: switch.ask(StopCause.TIMEOUT),
        lambda: switch.ask(StopCause.CANCEL),
        lambda: switch.ask(StopCause.DRAIN),
    ]

    seen = []
    for ask in order:
        ask()
        seen.append(switch.cause)

    assert seen == [StopCause.DRAIN, StopCause.DRAIN, StopCause.CANCEL, StopCause.CANCEL]
