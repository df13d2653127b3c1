"""A disk that is really small, for tests of what happens when it is full."""

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

SIZE_BYTES = 4 << 20


class Usage(NamedTuple):
    """As shutil.disk_usage tells it."""

    total: int
    used: int
    free: int


@contextmanager
def small_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a folder that holds `SIZE_BYTES`.

    A file system in memory where this user may mount one; else a folder whose files may not grow
    beyond that size, with the usage of the disk told as if it ended there.
    """
    disk = folder / "disk"
    disk.mkdir()
    if _mount(disk):
        try:
            yield disk
        finally:
            subprocess.run(["umount", "--lazy", disk], check=True)
        return
    real = shutil.disk_usage
    monkeypatch.setattr(
        "shutil.disk_usage",
        lambda path: _usage(disk) if Path(path).is_relative_to(disk) else real(path),
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE_BYTES, hard))
    try:
        yield disk
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _mount(disk: Path) -> bool:
    if os.geteuid() != 0:
        return False
    options = ["-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "tmpfs"]
    return (
        subprocess.run(["mount", *options, disk], check=False, capture_output=True).returncode == 0
    )


def _usage(disk: Path) -> Usage:
    used = sum(path.stat().st_blocks * 512 for path in disk.rglob("*") if path.is_file())
    return Usage(SIZE_BYTES, used, max(0, SIZE_BYTES - used))
