"""Download the files of a hub model: resumed where a connection broke, verified, kept once."""

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from app.domain.errors import Unavailable
from app.domain.sources import PinnedFile
from app.integrations.hub import HubClient, RepoFile
from workers.runtime.context import Stopped

_MAX_FAILURES = 5  # in a row, without a byte gained; then the job's own retries take over
_MAX_PAUSE_S = 30.0
_LOCK_POLL_S = 0.5
_HASH_CHUNK_BYTES = 4 * 1024 * 1024


class DigestMismatch(Exception):
    """The bytes that arrived are not those that were pinned."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How a long copy asks whether to go on, and tells how far it is.

    Both functions are called for every chunk that arrives (64 KiB from a hub): keep them cheap.
    """

    should_stop: Callable[[], bool]
    gained: Callable[[int], None]

    def step(self, size: int) -> None:
        """Report `size` more bytes; raises `Stopped` where the attempt is to end."""
        if self.should_stop():
            raise Stopped
        self.gained(size)


def wait_quietly(seconds: float) -> None:
    """Wait; tests pass a function that does not."""
    threading.Event().wait(seconds)


class HubDownloader:
    """Brings single files of one commit into a folder.

    Several processes may share the folder: each file has a lock, and appears under its own name
    only when whole and verified. A part that was left behind is continued.
    """

    def __init__(
        self,
        client: HubClient,
        folder: Path,
        *,
        progress: Progress,
        pause: Callable[[float], None] = wait_quietly,
    ) -> None:
        self._client = client
        self._folder = folder
        self._progress = progress
        self._pause = pause
        folder.mkdir(parents=True, exist_ok=True)

    def fetch(self, repo_id: str, commit: str, file: PinnedFile) -> tuple[Path, str]:
        """Return the path and SHA-256 of the file, downloading what is missing.

        Raises `DigestMismatch` where it is still wrong after a second download from the start.
        """
        path = self._folder / file["path"]
        with self._lock(path):
            if path.exists():
                digest = self._hash(path)
                if _is(file, path, digest):
                    return path, digest
                path.unlink()
            source = RepoFile(repo_id, commit, file["path"])
            for _ in range(2):
                part = self._folder / f"{file['path']}.part"
                self._complete(source, part, file["size"])
                digest = self._hash(part, count=False)
                if _is(file, part, digest):
                    part.chmod(0o444)
                    part.replace(path)
                    return path, digest
                self._progress.gained(-part.stat().st_size)
                part.unlink()
        raise DigestMismatch(file["path"])

    @contextmanager
    def _lock(self, path: Path) -> Iterator[None]:
        lock = FileLock(path.with_name(f"{path.name}.lock"))
        while not lock.is_locked:
            with suppress(Timeout):
                lock.acquire(timeout=_LOCK_POLL_S)
            self._progress.step(0)
        try:
            yield
        finally:
            lock.release()

    def _hash(self, path: Path, *, count: bool = True) -> str:
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(_HASH_CHUNK_BYTES):
                digest.update(chunk)
                self._progress.step(len(chunk) if count else 0)
        return digest.hexdigest()

    def _complete(self, source: RepoFile, part: Path, size: int) -> None:
        """Continue `part` until it has `size` bytes."""
        kept = furthest = _size(part)
        self._progress.gained(kept)
        failures = 0
        while kept < size or not part.exists():
            error = self._continue(source, part, kept, size)
            kept = _size(part)
            # Not what one connection gave: a server that ignores ranges and breaks off each time
            # gives much, and never gets any further.
            failures = 0 if kept > furthest else failures + 1
            furthest = max(furthest, kept)
            if failures >= _MAX_FAILURES:
                raise error or Unavailable(
                    f"The model hub ends each download of {source.path} early, at {kept} of {size} "
                    "bytes.",
                    retry_after_s=60,
                )
            if error is not None and failures:
                self._pause(min(error.retry_after_s or 2.0**failures, _MAX_PAUSE_S))
                self._progress.step(0)

    def _continue(self, source: RepoFile, part: Path, kept: int, size: int) -> Unavailable | None:
        """Append what one connection gives; return what ended it early."""
        try:
            with (
                self._client.download(source, start=kept) as download,
                part.open("ab") as file,
            ):
                if download.start < kept:  # the server gave the whole file again
                    self._progress.gained(-kept)
                    file.truncate(0)
                    kept = 0
                for chunk in download.chunks():
                    kept += len(chunk)
                    file.write(chunk)
                    self._progress.step(len(chunk))
                    if kept > size:
                        break  # more than the listing says: the digest will not fit
        except Unavailable as exc:
            return exc
        return None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _is(file: PinnedFile, path: Path, digest: str) -> bool:
    return path.stat().st_size == file["size"] and file["sha256"] in (None, digest)
