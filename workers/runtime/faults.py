"""Name what went wrong in an attempt."""

import errno
import re
from pathlib import Path

from app.domain.errors import JobErrorCode, JobFailure

# The last one: the file system, or a limit on this process, takes no file of that size.
_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# How libraries written in Rust (safetensors, tokenizers) spell it, in errors of their own.
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
# What torch raises as plain `RuntimeError`: its allocator for the host, on Linux and elsewhere, and
# what takes memory of the device past its caching allocator (cuBLAS, cuDNN, the CUDA context).
_HOST_MEMORY = re.compile(r"(?:can't allocate|not enough) memory: you tried to allocate")
_DEVICE_MEMORY = re.compile(r"\bCU[A-Z_]+_ALLOC_FAILED\b|CUDA error: out of memory")
_EXITED = re.compile(r"exitcode (-?\d+)")
_KILLED = re.compile(r"signal (\d+)")

_CGROUP = Path("/sys/fs/cgroup")
_OOM_COUNTERS = (_CGROUP / "memory.events", _CGROUP / "memory" / "memory.oom_control")
_LIMITS = (_CGROUP / "memory.max", _CGROUP / "memory" / "memory.limit_in_bytes")


def name_failure(exc: BaseException) -> JobFailure:
    """Turn whatever an engine raised into the job's error. Details stay in the log."""
    if isinstance(exc, JobFailure):
        return exc
    if isinstance(exc, BaseExceptionGroup):
        named = [name_failure(one) for one in exc.exceptions]
        known = (failure for failure in named if failure.code is not JobErrorCode.INTERNAL)
        return next(known, named[0])
    if isinstance(exc, MemoryError) or _says(exc, _HOST_MEMORY):
        return host_out_of_memory("The job asked for more memory than this host has.")
    # The name is torch's, without importing torch.
    if type(exc).__name__ == "OutOfMemoryError" or _says(exc, _DEVICE_MEMORY):
        return _device_out_of_memory()
    if is_disk_full(exc):
        return JobFailure(
            JobErrorCode.DISK_FULL,
            "The disk of the worker is full.",
            "Free space below the worker's scratch directory, or point DEBIAS_SCRATCH_DIR at a "
            "larger disk, then retry the job.",
        )
    if isinstance(exc, FloatingPointError):
        return numerical_failure(str(exc) or "A value is not finite.")
    return JobFailure(
        JobErrorCode.INTERNAL,
        f"The attempt ended with an unexpected {type(exc).__name__}.",
        "This is a defect of the service. The job's log has the traceback; quote the job id when "
        "you report it.",
    )


def _says(exc: BaseException, words: re.Pattern[str]) -> bool:
    """Look for words in what a `RuntimeError` was raised with; runs no code of the error's own."""
    said = exc.args[0] if isinstance(exc, RuntimeError) and exc.args else None
    return isinstance(said, str) and words.search(said) is not None


def is_disk_full(exc: BaseException | None) -> bool:
    """Tell whether a full disk is behind an error, itself or by what it was raised from."""
    seen: set[int] = set()
    while exc is not None and id(exc) not in seen:  # causes can go in circles
        seen.add(id(exc))
        if isinstance(exc, OSError) and exc.errno in _DISK_FULL:
            return True
        found = _OS_ERROR.search(str(exc)) if type(exc).__name__ == "SafetensorError" else None
        if found and int(found[1]) in _DISK_FULL:
            return True
        exc = exc.__cause__
    return False


def numerical_failure(message: str) -> JobFailure:
    """Describe a computation that left the finite numbers."""
    return JobFailure(
        JobErrorCode.NUMERICAL_FAILURE,
        message,
        "Run in float32 (resources.dtype), or use a milder setting of the method.",
    )


def host_out_of_memory(message: str) -> JobFailure:
    """Describe a job that the host's memory is too small for."""
    return JobFailure(
        JobErrorCode.OOM_HOST,
        message,
        "Give the worker more memory, or use a smaller model, a lower dtype or fewer prompts.",
        retryable=True,
    )


def _device_out_of_memory() -> JobFailure:
    return JobFailure(
        JobErrorCode.OOM_DEVICE,
        "The device ran out of memory.",
        "Set resources.dtype to bfloat16, ask for a larger device class, or shorten the prompts.",
    )


def parse_worker_loss(message: str) -> tuple[int | None, int | None]:
    """Read exit code and signal out of Celery's words about a child that died."""
    exited, killed = _EXITED.search(message), _KILLED.search(message)
    exit_code = int(exited.group(1)) if exited else None
    return exit_code, int(killed.group(1)) if killed else None


def oom_kills(counters: tuple[Path, ...] = _OOM_COUNTERS) -> int | None:
    """Count the kernel's out-of-memory kills in this container; None where it does not say."""
    for path in counters:
        try:
            lines = path.read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    return None


def memory_limit_bytes(limits: tuple[Path, ...] = _LIMITS) -> int | None:
    """Memory this container may use; None where there is no limit."""
    for path in limits:
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        # cgroup v1 writes "no limit" as a number close to 2**63.
        if text.isdigit() and int(text) < 2**60:
            return int(text)
    return None
