"""The Range header (RFC 9110, section 14)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import InvalidRange, RangeNotSatisfiable
from app.storage.ranges import ByteRange, if_range_holds, parse_range

SIZE = 10


@pytest.mark.parametrize(
    ("header", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=0-9", 0, 10),
        ("bytes=3-5", 3, 6),
        ("bytes=9-", 9, 10),
        ("bytes=0-", 0, 10),
        ("bytes=5-99", 5, 10),
        ("bytes=-1", 9, 10),
        ("bytes=-10", 0, 10),
        ("bytes=-999", 0, 10),
        ("bytes=2-" + "9" * 5000, 2, 10),
        ("Bytes= 1-2 ", 1, 3),
        ("bytes=1-2,", 1, 3),
        ("bytes=,\t1-2", 1, 3),
        ("bytes=001-002", 1, 3),
    ],
)
def test_a_single_range_is_read_and_cut_to_the_size(header: str, start: int, end: int) -> None:
    assert parse_range(header, SIZE) == ByteRange(start, end)


@pytest.mark.parametrize(
    "header",
    [None, "", "lines=1-2", "bytes=0-1,3-4", "bytes=0-1, -2", "bytes=0-1,99-100"],
)
def test_everything_else_that_is_legal_asks_for_the_whole(header: str | None) -> None:
    assert parse_range(header, SIZE) is None


@pytest.mark.parametrize(
    "header",
    [
        "bytes",
        "bytes=",
        "bytes=,",
        "bytes=-",
        "bytes=abc",
        "bytes=5-3",
        "bytes=1-2-3",
        "bytes=--1",
        "bytes=+1-2",
        "bytes=1 - 2",
        "bytes=0x1-2",
        "bytes=\u0661-\u0662",
        "bytes=0-1,x",
    ],
)
def test_a_malformed_header_is_refused(header: str) -> None:
    with pytest.raises(InvalidRange):
        parse_range(header, SIZE)


@pytest.mark.parametrize("header", ["bytes=10-", "bytes=10-12", "bytes=-0", f"bytes={10**30}-"])
def test_a_range_outside_is_refused_with_the_size(header: str) -> None:
    with pytest.raises(RangeNotSatisfiable) as caught:
        parse_range(header, SIZE)

    assert caught.value.headers == {"Content-Range": "bytes */10"}


def test_the_last_bytes_of_nothing_are_the_whole() -> None:
    assert parse_range("bytes=-5", 0) is None


def test_the_first_byte_of_nothing_lies_outside() -> None:
    with pytest.raises(RangeNotSatisfiable):
        parse_range("bytes=0-", 0)


def test_content_range_counts_the_last_byte() -> None:
    assert ByteRange(2, 5).content_range(10) == "bytes 2-4/10"


@given(size=st.integers(1, 60), first=st.integers(0, 80), length=st.integers(0, 80))
def test_a_range_selects_what_a_byte_by_byte_reading_does(
    size: int, first: int, length: int
) -> None:
    last = first + length
    expected = [position for position in range(size) if first <= position <= last]

    try:
        found = parse_range(f"bytes={first}-{last}", size)
    except RangeNotSatisfiable:
        assert expected == []
    else:
        assert found is not None
        assert list(range(found.start, found.end)) == expected


@given(size=st.integers(1, 60), suffix=st.integers(1, 80))
def test_a_suffix_selects_the_tail(size: int, suffix: int) -> None:
    found = parse_range(f"bytes=-{suffix}", size)

    assert found is not None
    assert list(range(size))[-suffix:] == list(range(found.start, found.end))


@given(
    header=st.text(alphabet="bytes=0123456789-, \tx\u0663", max_size=30), size=st.integers(0, 20)
)
def test_any_text_gives_a_range_inside_the_object_or_a_known_error(header: str, size: int) -> None:
    try:
        found = parse_range(f"bytes={header}", size)
    except (InvalidRange, RangeNotSatisfiable):
        return
    assert found is None or 0 <= found.start < found.end <= size


@pytest.mark.parametrize(
    ("header", "holds"),
    [
        (None, True),
        ('"sha256:aa"', True),
        ('W/"sha256:aa"', False),
        ('"sha256:bb"', False),
        ("Mon, 30 Nov 2026 12:00:00 GMT", False),
    ],
)
def test_if_range_needs_the_very_same_bytes(header: str | None, holds: bool) -> None:
    assert if_range_holds(header, '"sha256:aa"') is holds
