"""The machine a measurement was taken on, for the table beside its numbers."""

import os
import platform
import statistics
import time
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class Machine:
    """Its size, and how many processes wanted to run in the last minute, ours included.

    A shared machine is fast at one hour and slow at another: `additions_ms`, the time of a million
    additions in a Python loop, tells what runs can be compared.
    """

    cores: int
    memory_gib: float
    load_1m: float
    python: str
    additions_ms: float

    def __str__(self) -> str:
        return (
            f"{self.cores} cores, {self.memory_gib:.0f} GiB, Python {self.python}, "
            f"load average {self.load_1m:.1f}, a million additions in {self.additions_ms:.0f} ms"
        )


def this_machine() -> Machine:
    """Describe the machine now."""
    return Machine(
        cores=len(os.sched_getaffinity(0)),
        memory_gib=psutil.virtual_memory().total / 1024**3,
        load_1m=os.getloadavg()[0],
        python=platform.python_version(),
        additions_ms=statistics.median(_time_additions() for _ in range(9)),
    )


def _time_additions() -> float:
    began, total = time.perf_counter(), 0
    for number in range(1_000_000):
        total += number
    return (time.perf_counter() - began) * 1000
