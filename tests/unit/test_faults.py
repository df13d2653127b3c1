import errno
import os
from pathlib import Path

import pytest

from app.domain.errors import JobErrorCode, JobFailure
from workers.runtime.faults import (
    memory_limit_bytes,
    name_failure,
    oom_kills,
    parse_worker_loss,
)

# As torch 2.13 says it on Linux; `ELSEWHERE`, where malloc sets no error number.
NO_HOST_MEMORY = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: "
    "you tried to allocate 1125899906842624 bytes. Error code 12 (Cannot allocate memory)"
)
ELSEWHERE = "not enough memory: you tried to allocate 1981808640 bytes."
NO_CUBLAS = "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"


class SafetensorError(Exception):
    """Named like that of the library, which says the number in words only."""


class OutOfMemoryError(RuntimeError):
    """Named like torch's."""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MemoryError(), JobErrorCode.OOM_HOST),
        (RuntimeError(NO_HOST_MEMORY), JobErrorCode.OOM_HOST),
        (RuntimeError("DefaultCPUAllocator: " + ELSEWHERE), JobErrorCode.OOM_HOST),
        (OutOfMemoryError(), JobErrorCode.OOM_DEVICE),
        (RuntimeError(NO_CUBLAS), JobErrorCode.OOM_DEVICE),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), JobErrorCode.OOM_DEVICE),
        (RuntimeError("CUDA error: out of memory"), JobErrorCode.OOM_DEVICE),
        (RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"), JobErrorCode.INTERNAL),
        (ValueError(f"the prompt is {NO_CUBLAS!r}"), JobErrorCode.INTERNAL),
        (RuntimeError(12), JobErrorCode.INTERNAL),
        (RuntimeError(), JobErrorCode.INTERNAL),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), JobErrorCode.DISK_FULL),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)), JobErrorCode.DISK_FULL),
        (OSError(errno.EFBIG, os.strerror(errno.EFBIG)), JobErrorCode.DISK_FULL),
        (SafetensorError("I/O error: No space left (os error 28)"), JobErrorCode.DISK_FULL),
        (SafetensorError("I/O error: Permission denied (os error 13)"), JobErrorCode.INTERNAL),
        (OSError(errno.EACCES, os.strerror(errno.EACCES)), JobErrorCode.INTERNAL),
        (FloatingPointError("loss is nan"), JobErrorCode.NUMERICAL_FAILURE),
        (KeyError("x"), JobErrorCode.INTERNAL),
    ],
)
def test_each_kind_of_trouble_has_its_code(error: Exception, code: JobErrorCode) -> None:
    assert name_failure(error).code is code


def test_a_typed_failure_stays_what_it_is() -> None:
    failure = JobFailure(JobErrorCode.RELOAD_FAILED, "m", "h")

    assert name_failure(failure) is failure


def test_full_disk_behind_another_error_is_found() -> None:
    error = RuntimeError("the picture was not written")
    error.__cause__ = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    assert name_failure(error).code is JobErrorCode.DISK_FULL


def test_causes_that_go_in_circles_are_looked_at_once() -> None:
    first, second = RuntimeError("a"), RuntimeError("b")
    first.__cause__, second.__cause__ = second, first

    assert name_failure(first).code is JobErrorCode.INTERNAL


def test_a_group_has_the_name_of_its_first_member_that_has_one() -> None:
    inner = ExceptionGroup("inner", [OutOfMemoryError()])
    group = ExceptionGroup("several", [KeyError("x"), inner, MemoryError()])

    assert name_failure(group).code is JobErrorCode.OOM_DEVICE
    assert name_failure(ExceptionGroup("g", [KeyError("x")])).code is JobErrorCode.INTERNAL


def test_the_words_of_an_unexpected_error_do_not_reach_the_user() -> None:
    assert "/secret" not in name_failure(ValueError("/secret/path")).message


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("Worker exited prematurely: signal 9 (SIGKILL) Job: 0.", (None, 9)),
        ("Worker exited prematurely: exitcode 70 Job: 3.", (70, None)),
        ("something else", (None, None)),
    ],
)
def test_exit_code_and_signal_are_read_from_celerys_words(
    words: str, expected: tuple[int | None, int | None]
) -> None:
    assert parse_worker_loss(words) == expected


def test_the_kernels_count_of_kills_is_read(tmp_path: Path) -> None:
    counter = tmp_path / "memory.events"
    counter.write_text("low 0\nhigh 3\noom 2\noom_kill 1\n")

    assert oom_kills((tmp_path / "missing", counter)) == 1


def test_a_host_that_counts_no_kills_says_so(tmp_path: Path) -> None:
    assert oom_kills((tmp_path / "missing",)) is None


@pytest.mark.parametrize(
    ("text", "expected"), [("1073741824", 2**30), ("max", None), (str(2**63 - 4096), None)]
)
def test_the_memory_limit_of_a_container_is_read(
    tmp_path: Path, text: str, expected: int | None
) -> None:
    limit = tmp_path / "memory.max"
    limit.write_text(f"{text}\n")

    assert memory_limit_bytes((limit,)) == expected
