import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.canonical import canonical_json, canonical_sha256

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=20,
)  # fmt: skip


@given(DOCUMENTS)
def test_canonical_json_parses_to_the_same_document(document: object) -> None:
    assert json.loads(canonical_json(document)) == document


@given(st.dictionaries(st.text(st.characters(codec="utf-8")), st.integers(), min_size=2))
def test_key_order_does_not_change_the_hash(document: dict[str, int]) -> None:
    reversed_document = dict(reversed(document.items()))

    assert canonical_sha256(document) == canonical_sha256(reversed_document)


def test_keys_are_ordered_by_utf16_code_units_as_rfc_8785_asks() -> None:
    # U+10000 is D800 DC00 in UTF-16, so it sorts before U+FB33, whatever the code points say.
    assert canonical_json({"\ufb33": 1, "\U00010000": 2}) == '{"\U00010000":2,"\ufb33":1}'.encode()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_non_finite_numbers_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"metric": value})
