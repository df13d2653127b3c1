"""JSON of strangers: what the standard parser lets through and we do not."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.security.strict_json import BrokenJson, parse_object, printable

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), PLAIN, max_size=4))
def test_plain_objects_come_through(value: dict[str, Any]) -> None:
    assert parse_object(json.dumps(value).encode(), max_bytes=10**6) == value


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"a": 1, "b": 2, "a": 3}', 'key "a" twice'),
        (b'{"x": {"a": 1, "a": 1}}', 'key "a" twice'),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "Infinity"),
        (b'{"a": 1e999}', "1e999"),
        (b"{" + b" " * 100 + b"}", "larger than 100 bytes"),
        (b'{"\xff": 1}', "UTF-8"),
        (b"null", "not a JSON object"),
        (b'{"a": ' * 40 + b"1" + b"}" * 40, "larger"),
        (b'{"a": 1,}', "not valid JSON"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, reason: str) -> None:
    with pytest.raises(BrokenJson) as error:
        parse_object(data, max_bytes=100)

    assert reason in str(error.value)


@pytest.mark.parametrize("depth", [33, 500, 100_000])
def test_deep_nesting_is_refused(depth: int) -> None:
    data = b'{"a":' + b"[" * depth + b"]" * depth + b"}"

    with pytest.raises(BrokenJson, match="deep"):
        parse_object(data, max_bytes=10**6)


def test_depth_at_the_limit_is_accepted() -> None:
    assert parse_object(b'{"a": [[1]]}', max_bytes=100, max_depth=3) == {"a": [[1]]}
    with pytest.raises(BrokenJson, match="2 levels"):
        parse_object(b'{"a": [[1]]}', max_bytes=100, max_depth=2)


@given(st.binary(max_size=60))
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    try:
        value = parse_object(data, max_bytes=50)
    except BrokenJson:
        return

    assert json.loads(data) == value


@given(st.text(max_size=200))
def test_quoted_text_is_short_printable_ascii(text: str) -> None:
    shown = printable(text, limit=20)

    assert shown.isascii()
    assert shown.isprintable()
    assert len(json.loads(shown)) <= 23
