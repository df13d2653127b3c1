"""Keep a process of our own running, and end it with all that it started."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress

import structlog

from app.domain.errors import DebiasError

log = structlog.get_logger()

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
# A process that lived this long did not die of what killed its predecessor.
HEALTHY_S = 10.0

Process = subprocess.Popen[bytes]


class Keeper:
    """Starts a process, and starts it again with growing pauses when it ends by itself.

    Parameters
    ----------
    start
        Starts the process as the leader of a session of its own.
    """

    def __init__(
        self, name: str, start: Callable[[], Process], *, monotonic: Callable[[], float]
    ) -> None:
        self._name = name
        self._start = start
        self._monotonic = monotonic
        self._stopping = threading.Event()
        self._process: Process | None = None
        self._thread = threading.Thread(target=self._watch, name=f"keep-{name}", daemon=True)

    def start(self) -> None:
        """Start the process and watch it."""
        self._process = self._start()
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """End the process: SIGTERM first, SIGKILL for its whole session after `timeout_s`."""
        self._stopping.set()
        known = self._process
        _end(known, timeout_s)
        if self._thread.is_alive():
            self._thread.join()
        if self._process is not known:  # started again at this very moment
            _end(self._process, timeout_s)

    def _watch(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._stopping.is_set():
            began = self._monotonic()
            code = self._process.wait() if self._process else None
            if self._stopping.is_set():
                return
            if self._monotonic() - began >= HEALTHY_S:
                pause_s = FIRST_PAUSE_S
            log.warning("process_ended", name=self._name, code=code, restart_in_s=pause_s)
            if not self._stopping.wait(pause_s):
                self._process = self._start_again()
            pause_s = min(LONGEST_PAUSE_S, pause_s * 2)

    def _start_again(self) -> Process | None:
        try:
            return self._start()
        except (OSError, DebiasError):
            log.exception("process_not_started", name=self._name)
            return None


def _end(process: Process | None, timeout_s: float) -> None:
    if process is None:
        return
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout_s)
    kill_session(process)


def kill_session(process: Process) -> None:
    """Kill what is left of the session that `process` leads, and wait for the process."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
