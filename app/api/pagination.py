"""Keyset pages: a cursor names the last id seen and the filters it was issued for."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

from fastapi import Request
from starlette.responses import Response

from app.domain.canonical import canonical_json, canonical_sha256
from app.domain.errors import InvalidCursor
from app.schemas.base import PageParameters

CURSOR_VERSION = 1
PAGE_FIELDS = frozenset({"limit", "cursor"})


class HasId(Protocol):
    """A row that pages are ordered by."""

    @property
    def id(self) -> Any:
        """The id that a cursor names."""


RowT = TypeVar("RowT", bound=HasId)


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Where a page starts and how long it may be; `filters` is the hash of all other parameters."""

    before: UUID | None
    limit: int
    filters: str

    @property
    def fetch(self) -> int:
        """How many rows to ask for: one more than the page tells whether there is a next one."""
        return self.limit + 1


@dataclass(frozen=True, slots=True)
class Slice(Generic[RowT]):
    """The rows of a page and the cursor of the next one."""

    rows: Sequence[RowT]
    next_cursor: str | None


def read_page(parameters: PageParameters, route: str) -> PageRequest:
    """Read the paging parameters of a list.

    Raises
    ------
    InvalidCursor
        For a cursor that is broken, or was issued for another list or other filters.
    """
    filters = parameters.model_dump(mode="json", exclude=set(PAGE_FIELDS))
    digest = canonical_sha256({"route": route, "filters": filters})[:16]
    before = None
    if parameters.cursor is not None:
        before = _read_cursor(parameters.cursor, digest)
    return PageRequest(before, parameters.limit, digest)


def cut(rows: Sequence[RowT], page: PageRequest) -> Slice[RowT]:
    """Cut the fetched rows to the page."""
    if len(rows) <= page.limit:
        return Slice(rows, None)
    kept = rows[: page.limit]
    return Slice(kept, _write_cursor(kept[-1].id, page.filters))


def link_next(request: Request, response: Response, cursor: str | None) -> None:
    """Name the next page in a `Link` header."""
    if cursor is not None:
        query = request.url.include_query_params(cursor=cursor).query
        response.headers["Link"] = f'<{request.url.path}?{query}>; rel="next"'


def _write_cursor(before: UUID, filters: str) -> str:
    data = canonical_json({"v": CURSOR_VERSION, "before": before.hex, "f": filters})
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _read_cursor(cursor: str, filters: str) -> UUID:
    try:
        data = json.loads(base64.b64decode(_padded(cursor), altchars=b"-_", validate=True))
    except (ValueError, RecursionError) as exc:
        raise _broken() from exc
    if not isinstance(data, Mapping) or data.get("v") != CURSOR_VERSION:
        raise _broken()
    if data.get("f") != filters:
        raise InvalidCursor("This cursor was issued for other filters: start again without one.")
    try:
        return UUID(hex=data["before"])
    except (KeyError, ValueError, AttributeError, TypeError) as exc:
        raise _broken() from exc


def _padded(cursor: str) -> bytes:
    return cursor.encode("ascii", errors="replace") + b"=" * (-len(cursor) % 4)


def _broken() -> InvalidCursor:
    return InvalidCursor("This cursor is broken: start again without one.")
