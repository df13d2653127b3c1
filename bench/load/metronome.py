"""When the machine itself was slow: a shared one may stop for a moment, whatever runs on it."""

import bisect
import multiprocessing
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

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
    """The moments, on the clock of `time.perf_counter`, in which the machine was slow."""

    starts: tuple[float, ...]
    ends: tuple[float, ...]
    share: float

    @classmethod
    def of(cls, beats: Sequence[Beat]) -> "Pace":
        """Find the beats that took more than three times the median."""
        usual = statistics.median(beat.cpu_s for beat in beats)
        slow = [beat for beat in beats if beat.cpu_s > SLOW * usual]
        return cls(
            starts=tuple(beat.at - BEAT_S for beat in slow),
            ends=tuple(beat.at + beat.cpu_s + BEAT_S for beat in slow),
            share=len(slow) / len(beats),
        )

    def was_slow(self, began: float, ended: float) -> bool:
        """Whether the machine was slow for a part of a time."""
        # The last slow moment that began before the end is the only one that can reach into it.
        index = bisect.bisect_left(self.starts, ended) - 1
        return index >= 0 and self.ends[index] > began


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
