import json

import pytest

from app.domain.errors import JobErrorCode, JobFailure
from app.domain.text import storable


@pytest.mark.parametrize(
    ("text", "stored"),
    [("plain ü 漢 😀", "plain ü 漢 😀"), ("a\x00b", "a\\x00b"), ("\ud800!", "\\ud800!"), ("", "")],
)
def test_what_a_database_refuses_is_escaped(text: str, stored: str) -> None:
    assert storable(text) == stored
    assert json.loads(json.dumps(stored).encode()) == stored


def test_a_text_that_is_too_long_says_how_long_it_was() -> None:
    cut = storable("x" * 5000, limit=100)

    assert len(cut) == 100
    assert cut.endswith("… (5000 characters)")


def test_a_failure_prints_what_any_log_can_carry() -> None:
    failure = JobFailure(JobErrorCode.INTERNAL, "bad \x00 and \ud800", "hint")

    assert str(failure).encode("utf-8") == b"internal: bad \\x00 and \\ud800"
