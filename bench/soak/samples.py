"""Memory and file descriptors of every process of a deployment, over its whole life."""

import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

from tests.service import Service

PERIOD_S = 1.0
# A process that has just started is still importing, and fills its pools with its first requests.
WARM_UP_S = 30.0
# Below this a quarter of the life is too few samples to say anything.
LEAST_LIFE_S = 60.0
MIB = 1024**2
# What may be gained between first and last quarter of a life: allocators round up, pools fill.
RSS_SHARE, RSS_MARGIN_BYTES, DESCRIPTOR_MARGIN = 0.10, 8 * MIB, 4
RULE = (
    "For the longest-lived process of each role that lived more than "
    f"{LEAST_LIFE_S:.0f} s after its first {WARM_UP_S:.0f} s: the median of the last quarter of "
    f"its life is at most {1 + RSS_SHARE:.2f} times that of the first plus "
    f"{RSS_MARGIN_BYTES // MIB} MiB (memory), or that plus {DESCRIPTOR_MARGIN} (descriptors)."
)


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at one process."""

    at: float
    rss_bytes: int
    descriptors: int


@dataclass(frozen=True, slots=True)
class Growth:
    """How the longest-lived process of a role grew: medians of two quarters of its life."""

    role: str
    processes: int
    life_s: float
    rss_bytes: tuple[float, float]
    descriptors: tuple[float, float]

    @property
    def judged(self) -> bool:
        """Whether it lived long enough to be judged."""
        return self.life_s >= LEAST_LIFE_S

    @property
    def flat(self) -> bool:
        """Whether it stayed within `RULE`."""
        first, last = self.rss_bytes
        begun, ended = self.descriptors
        within = last <= first * (1 + RSS_SHARE) + RSS_MARGIN_BYTES
        return within and ended <= begun + DESCRIPTOR_MARGIN


@dataclass
class Sampler:
    """Looks at all processes of a service once a second, in a thread."""

    service: Service
    _seen: dict[tuple[str, int], list[Sample]] = field(default_factory=lambda: defaultdict(list))
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def growths(self) -> list[Growth]:
        """Say for each role how its longest-lived process grew."""
        roles = sorted({role for role, _ in self._seen})
        found = (self._growth(role) for role in roles)
        return [growth for growth in found if growth is not None]

    def _growth(self, role: str) -> Growth | None:
        lives = [samples for (name, _), samples in self._seen.items() if name == role]
        longest = max(lives, key=lambda samples: samples[-1].at - samples[0].at)
        warm = [sample for sample in longest if sample.at - longest[0].at >= WARM_UP_S]
        if len(warm) < 4:
            return None
        quarter = max(1, len(warm) // 4)
        first, last = warm[:quarter], warm[-quarter:]
        return Growth(
            role,
            processes=len(lives),
            life_s=warm[-1].at - warm[0].at,
            rss_bytes=_medians(first, last, lambda sample: sample.rss_bytes),
            descriptors=_medians(first, last, lambda sample: sample.descriptors),
        )

    def _run(self) -> None:
        while not self._stopping.wait(PERIOD_S):
            now = time.monotonic()
            for role, process in _processes(self.service):
                with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                    if process.status() == psutil.STATUS_ZOMBIE:
                        continue
                    sample = Sample(now, process.memory_info().rss, process.num_fds())
                    self._seen[role, process.pid].append(sample)


def _medians(
    first: list[Sample], last: list[Sample], value: Callable[[Sample], float]
) -> tuple[float, float]:
    return statistics.median(map(value, first)), statistics.median(map(value, last))


def _processes(service: Service) -> Iterator[tuple[str, psutil.Process]]:
    """All processes with their roles: what was started, a worker's children, an own Redis."""
    for role, started in list(service.processes.items()):
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(started.pid)
            yield role, process
            for child in process.children():
                yield from _below(role, child)


def _below(role: str, child: psutil.Process) -> Iterator[tuple[str, psutil.Process]]:
    with suppress(psutil.NoSuchProcess):
        if role != "serve":
            yield f"{role}, child", child
        elif "worker" in child.cmdline():
            yield "worker", child
            for grandchild in child.children():
                yield "worker, child", grandchild
        elif "redis" in child.name():
            yield "redis", child
