"""Keep what was read of a commit: it can never change."""

import hashlib
import os
import tempfile
from pathlib import Path


class CommitCache:
    """Small files and headers of public repositories, by hub, repository and commit.

    Folders are named by a digest, so nothing a user wrote becomes part of a path. Entries appear
    by a rename, whole or not at all. Listings are kept beside the files under names of their own.
    """

    def __init__(self, root: Path, *, endpoint: str, repo_id: str, commit: str) -> None:
        key = hashlib.sha256(f"{endpoint}\n{repo_id}\n{commit}".encode()).hexdigest()
        self.folder = root / key[:2] / key

    def get(self, name: str) -> bytes | None:
        """Return the entry `name`, or None where it is not kept."""
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def put(self, name: str, data: bytes) -> None:
        """Keep `data` as the entry `name`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=self.folder, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(self.folder / name)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
