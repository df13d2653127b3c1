"""Crash on purpose where a fault test asks for it."""

import os
import signal

FAULT_VARIABLE = "DEBIAS_FAULT"


def crash_point(point: str, number: int = 1) -> None:
    """Kill this process with SIGKILL if `DEBIAS_FAULT` is `<point>` or `<point>:<number>`.

    `number` counts the job's attempts, or its dispatches where no attempt exists yet. Does
    nothing unless the variable is set, which only fault tests do.
    """
    wanted = os.environ.get(FAULT_VARIABLE)
    if wanted in (point, f"{point}:{number}"):
        os.kill(os.getpid(), signal.SIGKILL)
