"""How to answer a request for the bytes of an artifact: status, headers and which bytes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from app.domain.errors import PreconditionFailed
from app.storage.hashing import repr_digest
from app.storage.ranges import if_range_holds, parse_range

_ETAG = re.compile(r'(?P<weak>W/)?(?P<tag>"[^"]*")')
# attr-char of RFC 8187 beyond letters and digits.
_PLAIN_IN_FILE_NAME = "!#$&+-.^_`|~"


@dataclass(frozen=True, slots=True)
class ContentPlan:
    """An answer without its body, which is bytes `start` to `end`, exclusive, of the artifact.

    No body goes with status 304, nor with any answer to HEAD.
    """

    status: int
    headers: dict[str, str]
    start: int
    end: int


def content_response_plan(
    request_headers: Mapping[str, str],
    *,
    size_bytes: int,
    sha256: str,
    file_name: str,
    media_type: str,
    method: str = "GET",
) -> ContentPlan:
    """Plan the answer to GET or HEAD: 200, 206 or 304.

    Preconditions come in the order of RFC 9110, section 13.2.2. Raises PreconditionFailed for
    `If-Match`, InvalidRange and RangeNotSatisfiable for `Range`. `file_name` may be a path; its
    last segment is offered to whoever saves the file.
    """
    asked = {name.lower(): value for name, value in request_headers.items()}
    etag = f'"sha256:{sha256}"'
    headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
    if "if-match" in asked and not _names(asked["if-match"], etag, weakly=False):
        raise PreconditionFailed("If-Match names other bytes than this artifact holds.")
    if "if-none-match" in asked and _names(asked["if-none-match"], etag, weakly=True):
        return ContentPlan(304, headers, 0, 0)
    headers |= _describe(sha256, file_name, media_type)
    wanted = None
    # Ranges are defined for GET only: HEAD describes the whole.
    if method == "GET" and if_range_holds(asked.get("if-range"), etag):
        wanted = parse_range(asked.get("range"), size_bytes)
    if wanted is None:
        return ContentPlan(200, headers | {"Content-Length": str(size_bytes)}, 0, size_bytes)
    headers |= {
        "Content-Length": str(wanted.end - wanted.start),
        "Content-Range": wanted.content_range(size_bytes),
    }
    return ContentPlan(206, headers, wanted.start, wanted.end)


def _describe(sha256: str, file_name: str, media_type: str) -> dict[str, str]:
    return {
        "Accept-Ranges": "bytes",
        "Content-Type": media_type,
        "Content-Disposition": _attachment(file_name),
        "Repr-Digest": repr_digest(sha256),
        "X-Content-Type-Options": "nosniff",
        # A report or an SVG opened in the browser runs nothing in this service's origin.
        "Content-Security-Policy": "sandbox",
    }


def _names(header: str, etag: str, *, weakly: bool) -> bool:
    """Tell whether a list of entity tags, or `*`, names `etag`."""
    if header.strip() == "*":
        return True
    return any(
        match["tag"] == etag and (weakly or not match["weak"]) for match in _ETAG.finditer(header)
    )


def _attachment(file_name: str) -> str:
    name = file_name.rpartition("/")[2]
    return f"attachment; filename*=UTF-8''{quote(name, safe=_PLAIN_IN_FILE_NAME)}"
