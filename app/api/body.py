"""Read a request body: bounded, uncompressed, and JSON in the strict sense."""

from collections.abc import Iterator
from email.message import Message as MimeHeader
from itertools import islice
from typing import Any

import anyio
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from app.domain.errors import (
    BadRequest,
    Finding,
    RequestTimeout,
    TooLarge,
    UnsupportedMediaType,
    ValidationFailed,
)
from app.domain.findings import Location, json_pointer
from app.security.strict_json import BrokenJson, parse_object

MAX_ARRAY_ITEMS = 10_000
MAX_TEXT_LENGTH = 4096
MAX_KEY_LENGTH = 256
# The largest object that a method takes has an entry for each layer of a model.
MAX_OBJECT_KEYS = 1000
# Three lists of 2,000 pairs have 24,000. Each key of a body can become a finding.
MAX_BODY_KEYS = 30_000
MAX_UNFIT = 20
# The largest body at 0.4 Mbit/s. No thread waits for a body, but a place among the requests does.
BODY_DEADLINE_S = 20.0


async def read_json_body(
    headers: Headers, receive: Receive, max_bytes: int
) -> tuple[bytes, dict[str, Any] | None]:
    """Read the body and the object in it; none, or null, gives None.

    Raises
    ------
    UnsupportedMediaType, TooLarge, RequestTimeout, BadRequest, ValidationFailed
        For a compressed body or one that is not JSON, too many bytes, a body that does not end,
        broken JSON, and text, numbers or arrays that no field may hold.
    """
    _require_plain(headers)
    _require_fitting_length(headers, max_bytes)
    body = await _read_in_time(receive, max_bytes)
    if not body:
        return body, None
    _require_json(headers)
    if body.strip() == b"null":
        return b"", None
    try:
        value = parse_object(body, max_bytes=max_bytes)
    except BrokenJson as exc:
        raise BadRequest(f"The body cannot be read as JSON: {exc}.") from exc
    findings = [*_too_many_keys(body, value), *islice(_find_unfit(value, ()), MAX_UNFIT)]
    if findings:
        raise ValidationFailed(findings[0].message, findings=findings)
    return body, value


async def _read_in_time(receive: Receive, max_bytes: int) -> bytes:
    try:
        with anyio.fail_after(BODY_DEADLINE_S):
            return await _read_bounded(receive, max_bytes)
    except TimeoutError as exc:
        raise RequestTimeout(
            f"The body did not arrive within {BODY_DEADLINE_S:.0f} s. Send the request again.",
            headers={"Connection": "close"},
        ) from exc


async def _read_bounded(receive: Receive, max_bytes: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > max_bytes:
            raise _too_large(max_bytes)
        more = message.get("more_body", False)
    return b"".join(chunks)


def _require_fitting_length(headers: Headers, max_bytes: int) -> None:
    """Refuse what says that it is too large, before any of it is read."""
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise _too_large(max_bytes)


def _too_large(max_bytes: int) -> TooLarge:
    # What is left of the body is not read, so no other request can follow it.
    return TooLarge(
        f"The body is larger than the limit of {max_bytes} bytes.",
        headers={"Connection": "close"},
    )


def _require_plain(headers: Headers) -> None:
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise UnsupportedMediaType(
            "Send the body uncompressed: this service reads no Content-Encoding.",
            headers={"Accept-Encoding": "identity"},
        )


def _require_json(headers: Headers) -> None:
    mime = MimeHeader()
    mime["content-type"] = headers.get("content-type", "")
    charset = str(mime.get_param("charset", "utf-8")).lower()
    if mime.get_content_type() != "application/json" or charset not in ("utf-8", "utf8"):
        raise UnsupportedMediaType("Send the body as `Content-Type: application/json` in UTF-8.")


def _too_many_keys(body: bytes, value: Any) -> Iterator[Finding]:
    # Counting colons takes no time, and most bodies have fewer than there may be keys.
    if body.count(b":") > MAX_BODY_KEYS and (count := _count_keys(value)) > MAX_BODY_KEYS:
        message = f"Give at most {MAX_BODY_KEYS} keys in all; there are {count}."
        yield Finding("", "too_many_keys", message)


def _count_keys(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(_count_keys, value.values()))
    return sum(map(_count_keys, value)) if isinstance(value, list) else 0


def _find_unfit(value: Any, location: Location) -> Iterator[Finding]:
    if isinstance(value, dict) and len(value) > MAX_OBJECT_KEYS:
        message = f"Give at most {MAX_OBJECT_KEYS} keys; there are {len(value)}."
        yield Finding(json_pointer(location), "too_many_keys", message)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _unfit_text(key, (*location, key), MAX_KEY_LENGTH)
            yield from _find_unfit(item, (*location, key))
    elif isinstance(value, list):
        yield from _unfit_array(value, location)
    elif isinstance(value, str):
        yield from _unfit_text(value, location, MAX_TEXT_LENGTH)


def _unfit_array(value: list[Any], location: Location) -> Iterator[Finding]:
    if len(value) > MAX_ARRAY_ITEMS:
        message = f"Give at most {MAX_ARRAY_ITEMS} items; there are {len(value)}."
        yield Finding(json_pointer(location), "array_too_long", message)
        return
    for index, item in enumerate(value):
        yield from _find_unfit(item, (*location, index))


def _unfit_text(text: str, location: Location, limit: int) -> Iterator[Finding]:
    if len(text) > limit:
        message = f"Shorten the text to at most {limit} characters; it has {len(text)}."
        yield Finding(json_pointer(location), "string_too_long", message)
    if "\0" in text:
        message = "Remove the NUL character from the text."
        yield Finding(_printable_pointer(location), "nul_in_text", message)
    if any("\ud800" <= character <= "\udfff" for character in text):
        message = "Remove the lone surrogate from the text: it is half a character."
        yield Finding(_printable_pointer(location), "lone_surrogate", message)


def _printable_pointer(location: Location) -> str:
    """Escape what may stand in a key but cannot be encoded in the answer."""
    text = json_pointer(location).encode("utf-8", errors="backslashreplace").decode()
    return text.replace("\0", "\\u0000")
