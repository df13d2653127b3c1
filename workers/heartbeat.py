"""The attempt's daemon thread: renews the lease, and carries every wish to stop to the engine."""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import structlog

from app.dispatch.timing import Timing
from app.domain.clock import Clock
from app.domain.states import JobStatus, StopReason
from workers.attempt.journal import DatabaseUnreachable, Fenced, Journal

log = structlog.get_logger()

JITTER = 0.1


class StopCause(StrEnum):
    """Why an attempt has to stop before it is finished."""

    CANCEL = "cancel"
    PAUSE = "pause"
    DRAIN = "drain"
    TIMEOUT = "timeout"
    STALL = "stall"
    OUTAGE = "outage"


class StopSwitch:
    """Set once; the first cause stays, but a cancel replaces any other."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._event = threading.Event()
        self._cause: StopCause | None = None
        self._asked_at = 0.0

    @property
    def cause(self) -> StopCause | None:
        """Why the attempt has to stop; None while it may go on."""
        return self._cause

    def is_set(self) -> bool:
        """Tell whether the attempt has to stop."""
        return self._event.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Wait until the attempt has to stop, for `timeout_s` at most; tell whether it has to."""
        return self._event.wait(timeout_s)

    def ask(self, cause: StopCause) -> None:
        """Ask the attempt to stop."""
        if self._cause is None:
            self._asked_at = self._clock.monotonic()
        if self._cause is None or cause is StopCause.CANCEL:
            self._cause = cause
        self._event.set()

    def overdue(self, grace_s: float) -> bool:
        """Tell whether the attempt was asked so long ago that its grace is over."""
        return self.is_set() and self._clock.monotonic() - self._asked_at >= grace_s


@dataclass(frozen=True, slots=True)
class Limits:
    """How long an attempt may run, and how long without any progress."""

    max_runtime_s: float
    stall_timeout_s: float


class Activity:
    """When the attempt last showed progress."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = clock.monotonic()

    def touch(self) -> None:
        """Note progress."""
        self._last = self._clock.monotonic()

    def idle_s(self) -> float:
        """Seconds since the last progress."""
        return self._clock.monotonic() - self._last


class Heartbeat:
    """Keeps one attempt alive, and ends it when it must end.

    Parameters
    ----------
    give_up
        Called from this thread when the process has to end at once: with the cause when the
        engine has not stopped within its grace, with None when the job is no longer ours.
    is_orphaned
        Whether the worker that forked this process is gone, or wants the job given back.
    """

    def __init__(
        self,
        journal: Journal,
        switch: StopSwitch,
        activity: Activity,
        *,
        limits: Limits,
        timing: Timing,
        clock: Clock,
        give_up: Callable[[StopCause | None], None],
        is_orphaned: Callable[[], bool],
    ) -> None:
        self._journal = journal
        self._switch = switch
        self._activity = activity
        self._limits = limits
        self._timing = timing
        self._clock = clock
        self._give_up = give_up
        self._is_orphaned = is_orphaned
        self._began = clock.monotonic()
        self._renew_at = clock.monotonic() + self._jittered(timing.heartbeat_s)
        self._unreachable_since: float | None = None
        self._stall_warned = False
        self._ended = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it."""
        self._ended.set()
        self._wake.set()
        self._thread.join()

    def wake(self) -> None:
        """Beat now, because something worth showing at once has happened."""
        self._wake.set()

    def tick(self) -> None:
        """Beat once and see whether the attempt has to stop."""
        try:
            self._beat()
        except Fenced:
            self._give_up(None)
            return
        self._check_limits()
        if self._is_orphaned():
            self._switch.ask(StopCause.DRAIN)
        if self._switch.overdue(self._timing.stop_grace_s):
            self._give_up(self._switch.cause)

    def _run(self) -> None:
        while not self._ended.is_set():
            self._wake.wait(self._timing.stop_poll_s)
            self._wake.clear()
            if not self._ended.is_set():
                self._tick_safely()

    def _tick_safely(self) -> None:
        try:
            self.tick()
        except Exception:  # a thread that died would look like a lost worker
            log.exception("heartbeat_failed")

    def _beat(self) -> None:
        renew = self._clock.monotonic() >= self._renew_at
        try:
            pulse = self._journal.beat(renew=renew)
        except DatabaseUnreachable as exc:
            self._note_outage(exc)
            return
        if pulse is None:
            return
        self._unreachable_since = None
        if renew:
            self._renew_at = self._clock.monotonic() + self._jittered(self._timing.heartbeat_s)
        if pulse.status is JobStatus.CANCELLING or pulse.stop_requested == StopReason.CANCEL:
            self._switch.ask(StopCause.CANCEL)
        elif pulse.stop_requested == StopReason.PAUSE:
            self._switch.ask(StopCause.PAUSE)
        if pulse.worker_state == "draining":
            self._switch.ask(StopCause.DRAIN)

    def _note_outage(self, exc: DatabaseUnreachable) -> None:
        """Keep working: while the database is away nobody else can claim the job either."""
        now = self._clock.monotonic()
        if self._unreachable_since is None:
            self._unreachable_since = now
            log.warning("database_unreachable", reason=str(exc))
        if now - self._unreachable_since >= self._timing.outage_stop_s:
            self._switch.ask(StopCause.OUTAGE)

    def _check_limits(self) -> None:
        if self._clock.monotonic() - self._began >= self._limits.max_runtime_s:
            self._switch.ask(StopCause.TIMEOUT)
        idle_s = self._activity.idle_s()
        if idle_s >= self._limits.stall_timeout_s:
            self._switch.ask(StopCause.STALL)
        elif idle_s < self._limits.stall_timeout_s / 2:
            self._stall_warned = False
        elif not self._stall_warned:
            self._stall_warned = True
            self._journal.warn("no_progress", f"No progress for {idle_s:.0f} s.")

    def _jittered(self, period_s: float) -> float:
        return period_s * random.uniform(1 - JITTER, 1 + JITTER)
