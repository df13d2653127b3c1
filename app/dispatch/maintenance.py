"""The maintenance loops: threads of the API process, safe to run in any number of replicas."""

import threading
import time
from collections.abc import Callable
from typing import Any

import structlog

from app.db.repositories.execution import jobs_are_moving
from app.db.session import Database
from app.db.transition import DISPATCH_TOPIC
from app.dispatch.broker import Broker, CeleryBroker
from app.dispatch.deadlines import Deadlines
from app.dispatch.dispatcher import Dispatcher
from app.dispatch.gc.collector import Collector
from app.dispatch.outbox import Relay
from app.dispatch.reaper import Reaper
from app.dispatch.timing import Timing
from app.settings import Settings

log = structlog.get_logger()

GC_PERIOD_S = 3600.0
# A job that comes alone is dispatched at once; of twenty a second each had a round of its own, a
# sixth of what the API then did.
NUDGE_GAP_S = 0.2
DEADLINE_PERIOD_S = 60.0


class Loop:
    """Calls `step` again and again in a thread of its own, until stopped.

    Parameters
    ----------
    step
        One round; returns whether there was something to do.
    least_s, most_s
        Wait after a round that had work, and the longest wait of an idle loop, to which the
        wait doubles.
    gap_s
        Least time from the begin of one round to that of the next: nudges that come closer
        together share a round.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], bool],
        *,
        least_s: float,
        most_s: float,
        gap_s: float = 0.0,
    ) -> None:
        self._name = name
        self._step = step
        self._least_s = least_s
        self._most_s = most_s
        self._gap_s = gap_s
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def nudge(self) -> None:
        """Do the next round now, or once the gap is over."""
        self._wake.set()

    def ask_to_stop(self) -> None:
        """Let the loop end after the running round."""
        self._stopping.set()
        self._wake.set()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end; tell whether it came."""
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        wait_s = self._least_s
        while not self._stopping.is_set():
            may_begin_at = time.monotonic() + self._gap_s
            worked = self._round()
            wait_s = self._least_s if worked else min(self._most_s, wait_s * 2)
            if self._wake.wait(wait_s):
                self._stopping.wait(max(0.0, may_begin_at - time.monotonic()))
                self._wake.clear()
                wait_s = self._least_s

    def _round(self) -> bool:
        try:
            return self._step()
        except Exception:  # a loop outlives an outage of what it works on
            log.exception("maintenance_failed", loop=self._name)
            return False


class MaintenanceLoops:
    """Relay, dispatcher, reaper, deadlines and collector of one process.

    Every step is idempotent and takes its rows under locks, so replicas need no leader.
    """

    def __init__(
        self,
        database: Database,
        settings: Settings,
        *,
        collector: Collector,
        broker: Broker | None = None,
    ) -> None:
        if broker is None:
            if settings.broker_url is None:
                raise ValueError("no broker: set DEBIAS_BROKER_URL")
            broker = CeleryBroker(settings.broker_url, settings.device_classes)
        self._broker = broker
        self._collector = collector
        self._database = database
        timing = Timing.from_lease(settings.lease_ttl_s)
        self.dispatcher = Dispatcher(
            database, broker, timing=timing, device_classes=settings.device_classes
        )
        self.relay = Relay(database, {DISPATCH_TOPIC: self._dispatch}, timing=timing)
        self.reaper = Reaper(database, timing=timing)
        self.deadlines = Deadlines(database)
        self._relay_loop = Loop(
            "relay",
            self._relay_step,
            least_s=timing.relay_min_s,
            most_s=timing.relay_max_s,
            gap_s=min(NUDGE_GAP_S, timing.relay_min_s),
        )
        self._loops = (
            self._relay_loop,
            _periodic("dispatcher", self.dispatcher.run_once, timing.dispatch_s),
            _periodic("reaper", self.reaper.run_once, timing.reaper_s),
            _periodic("deadlines", self.deadlines.run_once, DEADLINE_PERIOD_S),
            _periodic("gc", collector.run_once, GC_PERIOD_S),
        )
        self._running = False

    @property
    def running(self) -> bool:
        """Whether the threads were started and not yet stopped."""
        return self._running

    def start(self) -> None:
        """Start all loops."""
        for loop in self._loops:
            loop.start()
        self._running = True

    def stop(self, timeout_s: float = 10.0) -> None:
        """Stop all loops and give the broker's connections back."""
        self._running = False
        self._collector.stop()
        for loop in self._loops:
            loop.ask_to_stop()
        ended = [loop.join(timeout_s) for loop in self._loops]
        if all(ended):
            self._broker.close()

    def nudge(self) -> None:
        """Act on fresh outbox rows at once. Never blocks, never raises."""
        self._relay_loop.nudge()

    def broker_ok(self) -> bool:
        """Tell whether the broker answers."""
        return self._broker.ping()

    def _relay_step(self) -> bool:
        """Relay once. While jobs move the next look is soon: any moment may free a slot."""
        relayed = self.relay.run_once()
        with self._database.read() as session:
            return relayed > 0 or jobs_are_moving(session)

    def _dispatch(self, _messages: object) -> None:
        # A job that the broker refuses stays queued; the dispatcher's own period tries again.
        self.dispatcher.run_once()


def _periodic(name: str, step: Callable[[], Any], period_s: float) -> Loop:
    def one_round() -> bool:
        step()
        return True

    return Loop(name, one_round, least_s=period_s, most_s=period_s)
