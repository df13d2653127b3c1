from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.ids import IdPrefix, format_id, new_id, parse_id

JOB = IdPrefix.JOB


@given(st.uuids())
def test_format_and_parse_are_inverse(value: UUID) -> None:
    assert parse_id(JOB, format_id(JOB, value)) == value


@given(st.integers(0, 2**48 - 2))
def test_ids_of_later_milliseconds_sort_later_in_both_spellings(now_ms: int) -> None:
    earlier, later = new_id(now_ms), new_id(now_ms + 1)

    assert earlier < later
    assert format_id(JOB, earlier) < format_id(JOB, later)


def test_new_id_is_a_version_7_uuid_of_the_rfc_variant() -> None:
    value = new_id(1_700_000_000_000)

    assert value.version == 7
    assert value.variant == "specified in RFC 4122"
    assert value.int >> 80 == 1_700_000_000_000


@pytest.mark.parametrize(
    "text",
    ["", "job_", "job", "art_" + "0" * 26, "job_" + "0" * 25, "job_" + "0" * 27,
     "job_" + "u" * 26, "job_" + "O" * 26, "job_" + "z" * 26, "job_" + "٣" * 26],
)  # fmt: skip
def test_malformed_or_foreign_ids_are_refused(text: str) -> None:
    assert parse_id(JOB, text) is None
