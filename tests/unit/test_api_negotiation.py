"""Choosing a representation, and reading and writing entity tags and cursors."""

from dataclasses import dataclass
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from app.api.conditional import is_unchanged, version_tag
from app.api.negotiation import choose_media_type
from app.api.pagination import cut, read_page
from app.domain.errors import InvalidCursor, NotAcceptable
from app.schemas.base import PageParameters

OFFERED = ("application/json", "text/html")


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ([], "application/json"),
        (["*/*"], "application/json"),
        (["text/html"], "text/html"),
        (["text/*"], "text/html"),
        (["text/html;q=0.5, application/json;q=0.4"], "text/html"),
        (["text/html;q=0.5", "application/json"], "application/json"),
        (["text/html,application/xhtml+xml,*/*;q=0.8"], "text/html"),
        (["application/json;q=0, */*"], "text/html"),
        (["TEXT/HTML; charset=utf-8"], "text/html"),
        (["text/html;q=high"], "text/html"),
    ],
)
def test_best_quality_wins(accept: list[str], chosen: str) -> None:
    assert choose_media_type(accept, OFFERED) == chosen


@pytest.mark.parametrize("accept", ["application/xml", "application/json;q=0", "image/*"])
def test_excluded_representation_is_refused(accept: str) -> None:
    with pytest.raises(NotAcceptable, match="application/json"):
        choose_media_type([accept], ("application/json",))


@pytest.mark.parametrize(
    ("header", "unchanged"),
    [
        (None, False),
        ('"7"', True),
        ('W/"7"', True),
        ('"6", "7"', True),
        ("*", True),
        ('"70"', False),
        ("7", False),
    ],
)
def test_if_none_match(header: str | None, unchanged: bool) -> None:
    headers = [(b"if-none-match", header.encode())] if header else []
    request = Request({"type": "http", "headers": headers})

    assert is_unchanged(request, version_tag(7)) is unchanged


@dataclass
class Row:
    id: UUID


@given(numbers=st.sets(st.integers(1, 2**64), max_size=60), limit=st.integers(1, 10))
def test_pages_give_every_row_once_in_order(numbers: set[int], limit: int) -> None:
    rows = [Row(UUID(int=number)) for number in sorted(numbers, reverse=True)]
    seen: list[Row] = []
    cursor: str | None = None

    while True:
        page = read_page(PageParameters(limit=limit, cursor=cursor), "rows")
        below = [row for row in rows if page.before is None or row.id < page.before]
        found = cut(below[: page.fetch], page)
        seen += found.rows
        cursor = found.next_cursor
        if cursor is None:
            break

    assert seen == rows


@given(st.text(st.characters(exclude_characters="\0"), max_size=60))
def test_any_other_text_is_a_broken_cursor(text: str) -> None:
    with pytest.raises(InvalidCursor):
        read_page(PageParameters(cursor=text), "rows")
