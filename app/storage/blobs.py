"""Content-addressed blobs of a project: stored once, verified when written and when read."""

import hashlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from app.domain.errors import Internal
from app.storage.hashing import FileDigest
from app.storage.keys import blob_key
from app.storage.objects import ObjectStore

_UPLOAD_BYTES = 8


class BlobCorrupt(Internal):
    """The stored bytes are not those that were stored: their SHA-256 differs."""


@dataclass(frozen=True, slots=True)
class BlobRef:
    """Bytes of one project and where they are; `sha256` is lower-case hex."""

    sha256: str
    size_bytes: int
    key: str


def store_file(store: ObjectStore, project_id: str, path: Path, digest: FileDigest) -> BlobRef:
    """Store the bytes of a file under a name that no other upload has.

    The caller inserts its row afterwards: a crash in between leaves bytes without a row, which
    garbage collection finds, and never a row without bytes.
    """
    key = blob_key(project_id, digest.sha256, secrets.token_hex(_UPLOAD_BYTES))
    store.put_file(key, path)
    return BlobRef(digest.sha256, digest.size_bytes, key)


def is_stored(store: ObjectStore, key: str, size_bytes: int) -> bool:
    """Tell whether the store holds an object of this size under the key."""
    found = store.head(key)
    return found is not None and found.size_bytes == size_bytes


def fetch_file(store: ObjectStore, ref: BlobRef, path: Path) -> None:
    """Write a blob to a file that appears only when it is whole and verified.

    Raises ObjectMissing if the store does not hold it, BlobCorrupt if it holds other bytes.
    """
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    digest = hashlib.sha256()
    try:
        with partial.open("wb") as file:
            for chunk in store.stream(ref.key):
                digest.update(chunk)
                file.write(chunk)
        if digest.hexdigest() != ref.sha256:
            raise BlobCorrupt("Stored bytes no longer match their SHA-256.")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
