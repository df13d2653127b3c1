"""The machine a measurement was taken on, for the table beside its numbers."""

import os
import platform
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class Machine:
    """Its size, and how many processes wanted to run in the last minute, ours included."""

    cores: int
    memory_gib: float
    load_1m: float
    python: str

    def __str__(self) -> str:
        return (
            f"{self.cores} cores, {self.memory_gib:.0f} GiB, Python {self.python}, "
            f"load average {self.load_1m:.1f}"
        )


def this_machine() -> Machine:
    """Describe the machine now."""
    return Machine(
        cores=len(os.sched_getaffinity(0)),
        memory_gib=psutil.virtual_memory().total / 1024**3,
        load_1m=os.getloadavg()[0],
        python=platform.python_version(),
    )
