"""Keys of the object store: built from public ids, hashes and checked names, never from paths."""

import re
from dataclasses import dataclass

# A segment starts with a letter, digit or underscore, so neither "." nor ".." nor a hidden file
# is one. "#" stays out: the file store names its temporary files with it.
_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
# Limit of S3.
_MAX_KEY_BYTES = 1024
_SHA256 = re.compile(r"[0-9a-f]{64}")
PROJECTS = "p"
"""Everything that belongs to a project is below this prefix."""


@dataclass(frozen=True, slots=True)
class BlobAddress:
    """What the key of a blob says."""

    project_id: str
    sha256: str


@dataclass(frozen=True, slots=True)
class LogAddress:
    """What the key of a part of a log says."""

    project_id: str
    job_id: str


def validate_key(key: str) -> str:
    """Give back `key` if it is in the one spelling that every store understands alike.

    Raises ValueError otherwise: a bad key is a defect of the caller, not of a request.
    """
    return _join(*key.split("/"))


def blob_key(project_id: str, sha256: str, upload: str) -> str:
    """Name the immutable bytes with this SHA-256 (lower-case hex), as one upload stores them.

    Content addressing ends at the project, so that nobody learns what others store. Every upload
    has a name of its own: a collector that was held up deletes what it meant to delete, and never
    what somebody has stored since. The row of the blob says which upload is the one.
    """
    if not _SHA256.fullmatch(sha256):
        raise ValueError(f"not a SHA-256 in lower-case hex: {sha256!r}")
    name = f"{sha256}.{upload}"
    return _join(PROJECTS, project_id, "blobs", "sha256", sha256[:2], sha256[2:4], name)


def log_key(project_id: str, job_id: str, attempt_id: str, stream: str, number: int) -> str:
    """Name the part `number` of one stream of an attempt's log."""
    return _join(PROJECTS, project_id, "logs", job_id, attempt_id, stream, f"{number}.ndjson.gz")


def parse_key(key: str) -> BlobAddress | LogAddress | None:
    """Say what a key names; None for what is neither a blob nor a part of a log."""
    match key.split("/"):
        case ["p", project_id, "blobs", "sha256", _, _, name]:
            # Blobs of the first release have no upload in their name.
            sha256 = name.partition(".")[0]
            return BlobAddress(project_id, sha256) if _SHA256.fullmatch(sha256) else None
        case ["p", project_id, "logs", job_id, _, _, _]:
            return LogAddress(project_id, job_id)
    return None


def _join(*segments: str) -> str:
    key = "/".join(segments)
    if len(key) > _MAX_KEY_BYTES or not all(_SEGMENT.fullmatch(part) for part in segments):
        raise ValueError(f"not a key of the object store: {key!r}")
    return key
