"""Keys of the object store: built from public ids, hashes and checked names, never from paths."""

import re

# A segment starts with a letter, digit or underscore, so neither "." nor ".." nor a hidden file
# is one. "#" stays out: the file store names its temporary files with it.
_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
# Limit of S3.
_MAX_KEY_BYTES = 1024
_SHA256 = re.compile(r"[0-9a-f]{64}")


def validate_key(key: str) -> str:
    """Give back `key` if it is in the one spelling that every store understands alike.

    Raises ValueError otherwise: a bad key is a defect of the caller, not of a request.
    """
    return _join(*key.split("/"))


def blob_key(project_id: str, sha256: str) -> str:
    """Name the immutable bytes with this SHA-256 (lower-case hex) within one project.

    Content addressing ends at the project, so that nobody learns what others store.
    """
    if not _SHA256.fullmatch(sha256):
        raise ValueError(f"not a SHA-256 in lower-case hex: {sha256!r}")
    return _join("p", project_id, "blobs", "sha256", sha256[:2], sha256[2:4], sha256)


def log_key(project_id: str, job_id: str, attempt_id: str, stream: str, number: int) -> str:
    """Name the part `number` of one stream of an attempt's log."""
    return _join("p", project_id, "logs", job_id, attempt_id, stream, f"{number}.ndjson.gz")


def _join(*segments: str) -> str:
    key = "/".join(segments)
    if len(key) > _MAX_KEY_BYTES or not all(_SEGMENT.fullmatch(part) for part in segments):
        raise ValueError(f"not a key of the object store: {key!r}")
    return key
