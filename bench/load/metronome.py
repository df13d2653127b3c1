"""When the machine itself was slow: a shared one may stop for a moment, whatever runs on it."""

import bisect
import multiprocessing
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from operator import itemgetter

BEAT_S = 0.01
ADDITIONS = 6000
# CPU time, so that waiting for a core that our own processes use does not count. A neighbour on
# the same core takes a half; what is slower than this, nobody here has done.
SLOW = 3.0


@dataclass(frozen=True, slots=True)
class Beat:
    """The same little work, done again and again: when, and the CPU time it took."""

    at: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Pace:
    """When the machine was slow, on the clock of `time.perf_counter`, and its share of the time."""

    spans: tuple[tuple[float, float], ...]
    share: float

    @classmethod
    def of(cls, beats: Sequence[Beat]) -> "Pace":
        """Find the beats that took more than three times the median, and what lies between them."""
        usual = statistics.median(beat.cpu_s for beat in beats)
        slow = [beat for beat in beats if beat.cpu_s > SLOW * usual]
        spans: list[tuple[float, float]] = []
        for beat in slow:
            start, end = beat.at - BEAT_S, beat.at + beat.cpu_s + BEAT_S
            if spans and start <= spans[-1][1]:
                start = spans.pop()[0]
            spans.append((start, end))
        length = beats[-1].at - beats[0].at
        return cls(tuple(spans), sum(end - start for start, end in spans) / length)

    def slow_s(self, began: float, ended: float) -> float:
        """How much of a time the machine was slow."""
        first = bisect.bisect_left(self.spans, began, key=itemgetter(1))
        last = bisect.bisect_right(self.spans, ended, key=itemgetter(0))
        return sum(min(end, ended) - max(start, began) for start, end in self.spans[first:last])


class Metronome:
    """The other end of the process that keeps the beat."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def pace(self) -> Pace:
        """Tell how the machine was since the start."""
        self._connection.send("?")
        return Pace.of(self._connection.recv())


@contextmanager
def beating() -> Iterator[Metronome]:
    """Keep a beat in a process of its own: five percent of a core."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_beat, args=(theirs,), daemon=True
    )
    process.start()
    try:
        yield Metronome(ours)
    finally:
        process.kill()
        process.join()


def _beat(connection: Connection) -> None:
    beats: list[Beat] = []
    while True:
        began, cpu_s, total = time.perf_counter(), time.thread_time(), 0
        for number in range(ADDITIONS):
            total += number
        beats.append(Beat(began, time.thread_time() - cpu_s))
        if connection.poll(BEAT_S):
            connection.recv()
            connection.send(beats)
