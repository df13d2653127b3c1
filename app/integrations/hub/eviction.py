"""Keep the cache of hub files within its size: the least recently used commits go first.

Every process that uses the cache evicts from it. What another process uses is told by the
kernel: a pin is a shared lock, which goes with its process, and a file that an attempt works on
has a second link in the attempt's folder. Removing such a commit would free nothing, so it stays.
"""

import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.integrations.hub.cache import DRAFT_PREFIX, PIN_NAME, is_same_file

# A download that nobody continued for this long is not coming back.
LEFTOVER_AGE_S = 86_400
_REMOVED_PREFIX = ".removed-"
_BLOCK_BYTES = 512  # the unit of st_blocks


@dataclass(frozen=True, slots=True)
class CachedCommit:
    """One folder of the cache; `size_bytes` is what it holds on the disk.

    `linked` says that an attempt works on files of it, which hold their bytes as well.
    """

    folder: Path
    size_bytes: int
    last_used_at: float
    linked: bool


@dataclass(frozen=True, slots=True)
class Evicted:
    """What an eviction took away."""

    commits: int = 0
    freed_bytes: int = 0

    def __add__(self, other: "Evicted") -> "Evicted":
        """Sum two evictions up."""
        return Evicted(self.commits + other.commits, self.freed_bytes + other.freed_bytes)


class HubCache:
    """All commits of one cache folder. Safe for use by several processes at a time."""

    def __init__(self, root: Path, *, wall_time: Callable[[], float] = time.time) -> None:
        self._root = root
        self._wall_time = wall_time

    def commits(self) -> list[CachedCommit]:
        """List the commits, the least recently used first."""
        found = [_describe(folder) for folder in self._root.glob("[0-9a-f][0-9a-f]/*")]
        return sorted((commit for commit in found if commit), key=lambda one: one.last_used_at)

    def shrink(self, max_bytes: int) -> Evicted:
        """Evict until the cache has at most `max_bytes`, or all that is left is in use."""
        self.remove_leftovers()
        commits = self.commits()
        excess = sum(commit.size_bytes for commit in commits) - max_bytes
        evicted = Evicted()
        for commit in commits:
            if evicted.freed_bytes >= excess:
                break
            evicted += self._evict(commit)
        return evicted

    def make_room(self, missing_bytes: Callable[[], int]) -> Evicted:
        """Evict one commit after the other until no bytes are missing.

        Where all that may go would not be enough, all stay: losing them would help nobody.
        """
        evicted = Evicted()
        if missing_bytes() <= 0:
            return evicted
        self.remove_leftovers()
        commits = [commit for commit in self.commits() if _may_go(commit)]
        if sum(commit.size_bytes for commit in commits) < missing_bytes():
            return evicted
        for commit in commits:
            if missing_bytes() <= 0:
                break
            evicted += self._evict(commit)
        return evicted

    def remove_leftovers(self) -> None:
        """Remove what killed processes left: half-removed commits, old parts, drafts and locks."""
        for folder in self._root.glob(f"[0-9a-f][0-9a-f]/{_REMOVED_PREFIX}*"):
            shutil.rmtree(folder, ignore_errors=True)
        limit = self._wall_time() - LEFTOVER_AGE_S
        for folder in self._root.glob("[0-9a-f][0-9a-f]/*"):
            old = [path for path in _leftovers(folder) if _modified_at(path) < limit]
            if old:
                with _unused(folder) as ours:
                    for path in old if ours else ():
                        path.unlink(missing_ok=True)

    def _evict(self, commit: CachedCommit) -> Evicted:
        with _unused(commit.folder) as ours:
            # Described anew: an attempt may have linked a file since it was listed.
            current = _describe(commit.folder) if ours else None
            if current is None or current.linked:
                return Evicted()
            removed = commit.folder.with_name(_REMOVED_PREFIX + secrets.token_hex(8))
            commit.folder.rename(removed)
        shutil.rmtree(removed, ignore_errors=True)
        return Evicted(1, current.size_bytes)


def _may_go(commit: CachedCommit) -> bool:
    """Tell whether nobody uses a commit now; before it is evicted that is asked again."""
    with _unused(commit.folder) as ours:
        return ours and not commit.linked


@contextmanager
def _unused(folder: Path) -> Iterator[bool]:
    """Hold the folder alone; False where any process has pinned it, or it is gone."""
    path = folder / PIN_NAME
    try:
        handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except (FileNotFoundError, NotADirectoryError):
        yield False
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield is_same_file(handle, path)
    finally:
        os.close(handle)


def _describe(folder: Path) -> CachedCommit | None:
    """Measure a folder; None where it is none of ours, or went away meanwhile."""
    if folder.name.startswith("."):
        return None
    size, linked = 0, False
    last_used_at = _modified_at(folder / PIN_NAME) or _modified_at(folder)
    try:
        for entry in os.scandir(folder):
            facts = entry.stat(follow_symlinks=False)
            size += facts.st_blocks * _BLOCK_BYTES
            linked |= facts.st_nlink > 1
    except OSError:
        return None
    return CachedCommit(folder, size, last_used_at, linked)


def _leftovers(folder: Path) -> Iterator[Path]:
    for pattern in ("*.part", "*.lock", f"{DRAFT_PREFIX}*"):
        yield from folder.glob(pattern)


def _modified_at(path: Path) -> float:
    """When a file was last written; 0 where there is none."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
