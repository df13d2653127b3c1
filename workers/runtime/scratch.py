"""The folder an attempt works in. It goes when the attempt does, or at the next worker start."""

import fcntl
import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from uuid import UUID

LOCK_NAME = "lock"
# The scratch folder may be one that others use, too: nothing is removed but what is named so.
_ATTEMPT = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-[0-9]+")


@dataclass(frozen=True, slots=True)
class ScratchLayout:
    """Folders of one attempt."""

    root: Path

    @property
    def model(self) -> Path:
        """The base model, read-only."""
        return self.root / "model"

    @property
    def out(self) -> Path:
        """What becomes artifacts."""
        return self.root / "out"

    @property
    def temporary(self) -> Path:
        """Room for the engine."""
        return self.root / "tmp"

    @property
    def points(self) -> Path:
        """Checkpoints on their way to and from the store."""
        return self.root / "points"

    @property
    def logs(self) -> Path:
        """Captured streams."""
        return self.root / "logs"


class Scratch:
    """An attempt's folder, held by a lock that the kernel drops with the process."""

    def __init__(self, parent: Path, job_id: UUID, fence: int) -> None:
        self.layout = ScratchLayout(parent / f"{job_id}-{fence}")
        self._lock: int | None = None

    def __enter__(self) -> ScratchLayout:
        layout = self.layout
        # A process of an earlier attempt at the same name cannot be alive: names carry the fence.
        _remove_tree(layout.root)
        while self._lock is None:
            # Another worker's clean-up may take the folder away until it is locked.
            with suppress(FileNotFoundError):
                layout.root.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._lock = _try_lock(layout.root)
        try:
            for folder in (layout.out, layout.temporary, layout.points, layout.logs):
                folder.mkdir(mode=0o700)
        except OSError:  # no room: nobody will call __exit__
            self._remove()
            raise
        return layout

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        _remove_tree(self.layout.root)
        if self._lock is not None:
            os.close(self._lock)


def remove_abandoned(parent: Path) -> list[str]:
    """Remove the folders of attempts that no living process holds; return their names."""
    folders = [
        entry
        for entry in (sorted(parent.iterdir()) if parent.is_dir() else ())
        if _ATTEMPT.fullmatch(entry.name) and entry.is_dir() and not entry.is_symlink()
    ]
    return [folder.name for folder in folders if _remove_if_abandoned(folder)]


def free_bytes(folder: Path) -> int:
    """Free space of the file system that holds `folder`, which need not exist yet."""
    return shutil.disk_usage(nearest_existing(folder)).free


def nearest_existing(folder: Path) -> Path:
    """Name the folder itself, or its nearest parent that exists."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _remove_if_abandoned(folder: Path) -> bool:
    """Remove the folder while holding its lock, so that nobody can begin to use it meanwhile."""
    try:
        handle = _try_lock(folder)
    except FileNotFoundError:  # another worker was faster
        return False
    if handle is None:
        return False
    _remove_tree(folder)
    os.close(handle)
    return True


def _try_lock(folder: Path) -> int | None:
    """Lock the folder; None when another process holds it, or has just removed the lock."""
    path = folder / LOCK_NAME
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.stat().st_ino == os.fstat(handle).st_ino:
            return handle
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(handle)
    return None


def _remove_tree(folder: Path) -> None:
    """Remove a folder whose files may be read-only."""
    shutil.rmtree(folder, ignore_errors=True)
