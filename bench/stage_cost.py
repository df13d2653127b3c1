"""One stage of a side-by-side benchmark, in a process of its own. Standard library only.

Both sides run this file, each with its own Python: a stage is prepared once (imports, loading
the model), then run several times. Prints nothing; writes its result as JSON to a file.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Request:
    """What a stage works on; `folder` is empty and may be written to.

    `bias` is the file through which bias scores reach stages that load no model.
    """

    stage: str
    model: Path
    pairs: list[tuple[str, str]]
    percent: float
    repeat: int
    folder: Path
    result: Path
    bias: Path


PATHS = ("model", "folder", "result", "bias")

Run = Callable[[int], Any]
"""Do the work once; gets the number of the run and returns something to compare both sides by."""

Prepare = Callable[[Request], Run]


def resident_bytes(field: str) -> int:
    """Read `VmRSS` (now) or `VmHWM` (highest so far) of this process; Linux only.

    Not `ru_maxrss`: a new process inherits that from the one that started it.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def run_stage(stages: Mapping[str, Prepare]) -> None:
    """Measure the stage that the command line asks for."""
    fields = json.loads(sys.argv[1])
    request = Request(**{**fields, **{k: Path(fields[k]) for k in PATHS}})
    run = stages[request.stage](request)
    walls, cpus = [], []
    answer: Any = None
    for number in range(request.repeat):
        os.sync()
        wall, cpu = time.perf_counter(), time.process_time()
        answer = run(number)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    cost = {"wall_s": walls, "cpu_s": cpus, "peak_bytes": resident_bytes("VmHWM")}
    request.result.write_text(json.dumps({**cost, "answer": answer}))
