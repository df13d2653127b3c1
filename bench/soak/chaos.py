"""What kills processes during a soak, and starts again what nobody else does."""

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from tests.faults.disorder import Disorder
from tests.service import Service

WEIGHTS = {"kill_child": 0.5, "kill_worker": 0.2, "kill_api": 0.2, "forget_messages": 0.1}
# Alone it has no second API or worker: its end is the end of everything, and a start takes 5 s.
EMBEDDED_WEIGHTS = {**WEIGHTS, "kill_child": 0.7, "kill_worker": 0.1, "kill_api": 0.1}
LONGEST_FACTOR = 4


@dataclass
class Chaos:
    """Kills with SIGKILL at exponential intervals until told to stop.

    The last API and the last worker of a deployment with several are spared, so that there is a
    process of each kind that lives through all of it and shows whether it grows.
    """

    service: Service
    interval_s: float
    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    ended_alone: Counter[str] = field(default_factory=Counter)
    failure: BaseException | None = None
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run, name="chaos", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the running kill, once; raise what went wrong in it."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    def supervise(self) -> None:
        """Start what ended by itself, as the supervisor of a deployment does."""
        for role, process in list(self.service.processes.items()):
            if process.poll() is not None:
                self.ended_alone[f"{role} ({process.returncode})"] += 1
                self.service.start_role(role)

    def _run(self) -> None:
        try:
            self._disturb()
        except BaseException as exc:
            self.failure = exc

    def _disturb(self) -> None:
        rng = random.Random(self.seed)
        several = "serve" not in self.service.roles
        weights = WEIGHTS if several else EMBEDDED_WEIGHTS
        disorder = Disorder(self.service, spared=frozenset({_last_worker(self.service)}))
        due = time.monotonic()
        while True:
            due += min(rng.expovariate(1 / self.interval_s), LONGEST_FACTOR * self.interval_s)
            kind = rng.choices(list(weights), weights=list(weights.values()))[0]
            if self._stopping.wait(max(0.0, due - time.monotonic())):
                return
            # A kill lasts until what it killed is up again; no burst makes up for it.
            due = max(due, time.monotonic())
            self.supervise()
            getattr(disorder, kind)()
            self.kills[kind] += 1


def _last_worker(service: Service) -> str:
    return max((role for role in service.roles if role.startswith("worker")), default="")
