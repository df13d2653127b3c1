"""Durable, private and atomic writing of local files.

obstore's LocalStore writes beside the target and renames, but calls no fsync and leaves the
modes to the umask (seen in 0.12.1): a power cut could leave a database row without its bytes.
"""

import os
import secrets
import shutil
from pathlib import Path
from typing import BinaryIO

_COPY_BYTES = 1 << 20


def write_durably(path: Path, source: BinaryIO) -> None:
    """Write `source` to `path`, mode 0600: on return it survives a power cut, before it never was.

    Missing directories are created, mode 0700. A crash may leave `<name>#<digits>` behind, a
    form that LocalStore takes for unfinished and never lists.
    """
    make_private_directory(path.parent)
    temporary = path.with_name(f"{path.name}#{secrets.randbelow(10**18)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as target:
            shutil.copyfileobj(source, target, _COPY_BYTES)
            target.flush()
            os.fsync(target.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def make_private_directory(path: Path) -> None:
    """Create a directory and its missing parents, each with mode 0700, durably."""
    if path.is_dir():
        return
    make_private_directory(path.parent)
    # mkdir(parents=True) would give the parents the umask's mode.
    path.mkdir(mode=0o700, exist_ok=True)
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
