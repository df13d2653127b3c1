"""Keep what was read of a commit: it can never change."""

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PIN_NAME = ".pin"
DRAFT_PREFIX = ".new-"


class CommitCache:
    """Files, headers and listings of public repositories, by hub, repository and commit.

    Folders are named by a digest, so nothing a user wrote becomes part of a path. Entries appear
    by a rename, whole or not at all. Listings are kept beside the files under names of their own.
    """

    def __init__(self, root: Path, *, endpoint: str, repo_id: str, commit: str) -> None:
        key = hashlib.sha256(f"{endpoint}\n{repo_id}\n{commit}".encode()).hexdigest()
        self.folder = root / key[:2] / key

    @contextmanager
    def in_use(self) -> Iterator[Path]:
        """Pin the folder: it exists, and no process evicts it meanwhile.

        The kernel takes the pin away with the process. It also carries the time of the last use.
        """
        handle = self._pin()
        try:
            os.utime(handle)
            yield self.folder
        finally:
            os.close(handle)

    def get(self, name: str) -> bytes | None:
        """Return the entry `name`, or None where it is not kept or cannot be read."""
        try:
            data = (self.folder / name).read_bytes()
            os.utime(self.folder / PIN_NAME)
        except OSError:
            return None
        return data

    def put(self, name: str, data: bytes) -> None:
        """Keep `data` as the entry `name`; raises OSError where there is no room for it."""
        with self.in_use():
            handle, temporary = tempfile.mkstemp(dir=self.folder, prefix=DRAFT_PREFIX)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                Path(temporary).replace(self.folder / name)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise

    def _pin(self) -> int:
        path = self.folder / PIN_NAME
        while True:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:  # evicted since
                continue
            fcntl.flock(handle, fcntl.LOCK_SH)
            if is_same_file(handle, path):
                return handle
            os.close(handle)  # evicted while we waited for the lock


def is_same_file(handle: int, path: Path) -> bool:
    """Tell whether an open file is still the one at `path`."""
    try:
        return path.stat().st_ino == os.fstat(handle).st_ino
    except FileNotFoundError:
        return False
