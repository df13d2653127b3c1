"""SHA-256 of files, and its spelling in HTTP."""

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class FileDigest:
    """What identifies the bytes of a file; `sha256` is lower-case hex."""

    sha256: str
    size_bytes: int


def hash_file(path: Path) -> FileDigest:
    """Read a file once, in small pieces, for its SHA-256 and size."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return FileDigest(digest.hexdigest(), file.tell())


def repr_digest(sha256: str) -> str:
    """Spell a SHA-256 in hex as a `Repr-Digest` header (RFC 9530)."""
    return f"sha-256=:{base64.b64encode(bytes.fromhex(sha256)).decode('ascii')}:"
