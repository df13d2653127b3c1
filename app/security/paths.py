"""Names from users: which may name a file, and where below a folder they lead."""

import re
import unicodedata
from pathlib import Path

MAX_SEGMENTS = 8
# service.md 12, Paths. `\w` takes letters of every script, but no slash, colon or control mark.
_SEGMENT = re.compile(r"[\w .@+=-]{1,200}")


def is_plain_name(name: str) -> bool:
    """Whether `name` is a single file name without any way to point elsewhere."""
    return (
        _SEGMENT.fullmatch(name) is not None
        and name not in (".", "..")
        and unicodedata.is_normalized("NFC", name)
    )


def plain_segments(name: str) -> tuple[str, ...]:
    """Split a relative name with slashes into its plain segments.

    Raises `ValueError`, with a reason for people, where a segment is empty, `.`, `..`, too long,
    not in NFC or holds other characters than letters, digits and ` .@+=_-`, or where there are
    more than eight of them.
    """
    segments = tuple(name.split("/"))
    if len(segments) > MAX_SEGMENTS:
        raise ValueError(f"has more than {MAX_SEGMENTS} segments")
    if "" in segments:
        raise ValueError(
            "has an empty segment; it must be relative, without // or a slash at an end"
        )
    if "." in segments or ".." in segments:
        raise ValueError("must not have . or .. as a segment")
    if not all(is_plain_name(segment) for segment in segments):
        raise ValueError(
            "may hold letters, digits, spaces and .@+=_- only (in Unicode form NFC), "
            "up to 200 in a segment"
        )
    return segments


def resolve_below(root: Path, name: str) -> Path:
    """Resolve `root/name`, links followed, to a path that lies below `root`.

    Raises `ValueError` where the name is not plain or a link leads out of `root`, and
    `FileNotFoundError` where nothing is there.
    """
    path = root.joinpath(*plain_segments(name)).resolve(strict=True)
    if not path.is_relative_to(root.resolve(strict=True)):
        raise ValueError("leads out of its folder through a link")
    return path
