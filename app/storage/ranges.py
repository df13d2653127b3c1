"""The `Range` and `If-Range` headers of RFC 9110, for single byte ranges."""

import re
from dataclasses import dataclass

from app.domain.errors import InvalidRange, RangeNotSatisfiable

_RANGE = re.compile(r"(?P<first>[0-9]+)-(?P<last>[0-9]*)|-(?P<suffix>[0-9]+)")
# More digits than any object has bytes: read as this, so that a hostile number stays cheap.
_BEYOND = 10**18


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes `start` to `end`, exclusive; never empty."""

    start: int
    end: int

    def content_range(self, size_bytes: int) -> str:
        """Spell it as a `Content-Range` header."""
        return f"bytes {self.start}-{self.end - 1}/{size_bytes}"


def parse_range(header: str | None, size_bytes: int) -> ByteRange | None:
    """Read a `Range` header; None means: send the whole.

    That is the answer to no header, to another unit and to several ranges, as the standard
    allows. Raises InvalidRange for a malformed header, and RangeNotSatisfiable, with the
    `Content-Range` to send, for a range that lies outside.
    """
    unit, separator, text = (header or "").partition("=")
    if not separator and unit.strip().lower() == "bytes":
        raise _malformed()
    if not separator or unit.strip().lower() != "bytes":
        return None
    # Empty list elements are legal and mean nothing (RFC 9110, section 5.6.1).
    specs = [spec for part in text.split(",") if (spec := part.strip(" \t"))]
    ranges = [_parse_spec(spec) for spec in specs]
    if not ranges:
        raise _malformed()
    if len(ranges) > 1:
        return None
    return _resolve(*ranges[0], size_bytes)


def if_range_holds(header: str | None, etag: str) -> bool:
    """Tell whether `If-Range` lets the `Range` count: absent, or the strong `etag` itself.

    A date never holds, since no `Last-Modified` is sent that it could repeat.
    """
    return header is None or header.strip() == etag


def _parse_spec(spec: str) -> tuple[int | None, int | None]:
    """Read one range as (first, last): last None is open, first None makes last a suffix."""
    match = _RANGE.fullmatch(spec)
    if match is None:
        raise _malformed()
    if match["suffix"] is not None:
        return None, _number(match["suffix"])
    first = _number(match["first"])
    last = _number(match["last"]) if match["last"] else None
    if last is not None and last < first:
        raise _malformed()
    return first, last


def _resolve(first: int | None, last: int | None, size_bytes: int) -> ByteRange | None:
    if first is None:
        suffix = last or 0
        if suffix and not size_bytes:
            return None  # the last bytes of nothing are all of it
        first, last = size_bytes - min(suffix, size_bytes), None
    if first >= size_bytes:
        raise RangeNotSatisfiable(
            f"The artifact has {size_bytes} bytes; the range asks for none of them.",
            headers={"Content-Range": f"bytes */{size_bytes}"},
        )
    return ByteRange(first, size_bytes if last is None else min(last + 1, size_bytes))


def _number(digits: str) -> int:
    return int(digits) if len(digits) <= 18 else _BEYOND


def _malformed() -> InvalidRange:
    return InvalidRange("The Range header is malformed. Send bytes=<first>-<last>.")
