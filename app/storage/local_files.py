"""Durable, private and atomic writing of local files.

obstore's LocalStore writes beside the target and renames, but calls no fsync and leaves the
modes to the umask (seen in 0.12.1): a power cut could leave a database row without its bytes.
"""

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

_COPY_BYTES = 1 << 20
_TEMPORARY = re.compile(r".+#[0-9]+")


def write_durably(path: Path, source: BinaryIO) -> None:
    """Write `source` to `path`, mode 0600: on return it survives a power cut, before it never was.

    Missing directories are created, mode 0700. A crash may leave `<name>#<digits>` behind, a
    form that LocalStore takes for unfinished and never lists.
    """
    descriptor, temporary = _open_beside(path)
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


def delete_file(path: Path, root: Path) -> None:
    """Delete a file, and the directories between it and `root` that are now empty.

    Raises FileNotFoundError where there was no such file.
    """
    path.unlink()
    _remove_empty(path.parent, root)


def unfinished_files(root: Path, *, before: float) -> Iterator[tuple[Path, int]]:
    """Find what killed writers left behind, not written to since, with its size in bytes."""
    for folder, _, names in os.walk(root):
        for name in names:
            if not _TEMPORARY.fullmatch(name):
                continue
            path = Path(folder, name)
            with suppress(FileNotFoundError):
                found = path.stat()
                if found.st_mtime < before:
                    yield path, found.st_size


def remove_empty_directories(root: Path, *, before: float) -> None:
    """Remove directories that were empty already at that time, but not `root` itself."""
    for folder, _, _ in os.walk(root, topdown=False):
        path = Path(folder)
        with suppress(FileNotFoundError):
            if path != root and path.stat().st_mtime < before:
                _remove_empty(path, root)


def make_private_directory(path: Path) -> None:
    """Create a directory and its missing parents, each with mode 0700, durably."""
    if path.is_dir():
        return
    make_private_directory(path.parent)
    # mkdir(parents=True) would give the parents the umask's mode.
    path.mkdir(mode=0o700, exist_ok=True)
    _sync_directory(path.parent)


def _open_beside(path: Path) -> tuple[int, Path]:
    """Make a temporary file in the directory of `path`."""
    while True:
        temporary = path.with_name(f"{path.name}#{secrets.randbelow(10**18)}")
        # Whoever deletes the last file of a directory takes the directory along.
        with suppress(FileNotFoundError):
            make_private_directory(path.parent)
            return os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), temporary


def _remove_empty(folder: Path, root: Path) -> None:
    while folder != root and folder.is_relative_to(root):
        try:
            folder.rmdir()
        except OSError:  # not empty, or gone
            return
        folder = folder.parent


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
