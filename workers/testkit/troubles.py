"""Ways in which an engine goes wrong, for tests of what becomes of its job."""

import errno
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from app.catalog.testkit.fake import FakeConfig
from app.domain.errors import JobFailure

EXIT_CODE = 42
LINE = "x" * 1023
FLOOD_LINES = 64 * 1024
HUGE = 1_000_000
# Outlives its engine, but no test run.
ORPHAN_S = "30"


class OutOfMemoryError(RuntimeError):
    """Stands for torch's error of that name."""


class UnprintableError(Exception):
    """Raises when anybody wants to know what it says."""

    def __str__(self) -> NoReturn:
        raise RuntimeError("no text")

    def __repr__(self) -> NoReturn:
        raise RuntimeError("no text")


class UnpicklableError(Exception):
    """Cannot be sent to another process."""

    def __reduce__(self) -> NoReturn:
        raise TypeError("not across processes")


def cause_trouble(config: FakeConfig) -> None:
    """Do what the config asks for."""
    cause = _TROUBLES.get(config.trouble or "")
    if cause is not None:
        cause(config)


def _fail(config: FakeConfig) -> NoReturn:
    raise JobFailure(
        config.fail_code,
        "The fake method failed as asked.",
        "Ask for no trouble.",
        retryable=config.fail_retryable,
    )


def _raise(make: Callable[[], BaseException]) -> Callable[[FakeConfig], None]:
    def cause(_config: FakeConfig) -> None:
        raise make()

    return cause


def _several_failures() -> ExceptionGroup[Exception]:
    memory = ExceptionGroup("inner", [OutOfMemoryError("device")])
    return ExceptionGroup("several things went wrong", [ValueError("a detail"), memory])


def _recurse(config: FakeConfig) -> None:
    _recurse(config)


def _warn_as_error(_config: FakeConfig) -> None:
    warnings.simplefilter("error")
    warnings.warn("a harmless word", stacklevel=1)


def _kill_self(number: signal.Signals) -> Callable[[FakeConfig], None]:
    def kill(_config: FakeConfig) -> None:
        os.kill(os.getpid(), number)

    return kill


def _exit(_config: FakeConfig) -> NoReturn:
    os._exit(EXIT_CODE)


def _hang(_config: FakeConfig) -> None:
    threading.Event().wait()


def _leave_processes(_config: FakeConfig) -> None:
    """Fork, and start a program that outlives the engine."""
    if os.fork() == 0:
        os._exit(0)
    code = f"import threading; threading.Event().wait({ORPHAN_S})"
    subprocess.Popen([sys.executable, "-c", code])  # noqa: S603 - our own words


def _leave_thread(_config: FakeConfig) -> None:
    threading.Thread(target=threading.Event().wait, name="left", daemon=False).start()


def _close_descriptors(_config: FakeConfig) -> None:
    os.closerange(3, 4096)


def _change_directory(_config: FakeConfig) -> None:
    """Stand in a directory that is gone."""
    folder = Path("gone")
    folder.mkdir(exist_ok=True)
    os.chdir(folder)
    Path.cwd().rmdir()


def _flood(_config: FakeConfig) -> None:
    for _ in range(FLOOD_LINES):
        print(LINE)  # noqa: T201 - what is tested


_TROUBLES: Mapping[str, Callable[[FakeConfig], Any]] = {
    "fail": _fail,
    "exception": _raise(lambda: RuntimeError("the fake method raised as asked")),
    "unprintable": _raise(UnprintableError),
    "unpicklable": _raise(UnpicklableError),
    "odd_message": _raise(lambda: RuntimeError("nul \x00 half \ud800 " + "é" * HUGE)),
    "several": _raise(_several_failures),
    "interrupt": _raise(KeyboardInterrupt),
    "system_exit": _raise(lambda: SystemExit(0)),
    "generator_exit": _raise(GeneratorExit),
    "recursion": _recurse,
    "warning_as_error": _warn_as_error,
    "oom_device": _raise(OutOfMemoryError),
    "oom_host": _raise(MemoryError),
    "disk_full": _raise(lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))),
    "segfault": _kill_self(signal.SIGSEGV),
    "bus_error": _kill_self(signal.SIGBUS),
    "sigkill": _kill_self(signal.SIGKILL),
    "exit": _exit,
    "hang": _hang,
    "processes": _leave_processes,
    "thread": _leave_thread,
    "descriptors": _close_descriptors,
    "directory": _change_directory,
    "flood": _flood,
}
