"""Numbers, intervals and verdicts in words."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report_samples import METRICS, sample_rows
from workers.reports.document import Table, sort_rows
from workers.reports.pca import fit_pca
from workers.reports.picture import printable, signed_alike
from workers.reports.wording import (
    above_resolution,
    chance_note,
    counted,
    first_difference,
    row_words,
    size_text,
    table_texts,
)

ROW = replace(
    sample_rows()[0],
    before=0.2,
    after=0.25,
    delta=0.05,
    ci95_before=(0.15, 0.25),
    ci95_after=(0.2, 0.3),
    ci95_delta=(0.01, 0.09),
    improved=False,
    p_value=0.01,
)


def test_an_increase_is_told_with_the_same_fields_as_a_decrease():
    words = row_words(ROW, METRICS)

    assert (words.verdict, words.change, words.change_percent) == ("worse", "+0.0500", "+25.0 %")
    assert words.change_interval == "+0.0100 to +0.0900"


def test_tiny_values_share_one_power_of_ten():
    row = replace(
        ROW, before=8.7e-6, after=9.3e-6, delta=6e-7, ci95_before=(7e-6, 1e-5),
        ci95_delta=(1e-7, 1.1e-6),
    )  # fmt: skip

    words = row_words(row, METRICS)

    assert (words.before, words.change) == ("8.70 ×10⁻⁶", "+0.60 ×10⁻⁶")  # noqa: RUF001
    assert words.before_interval == "7.00 to 10.00 ×10⁻⁶"  # noqa: RUF001
    assert words.change_interval == "+0.10 to +1.10 ×10⁻⁶"  # noqa: RUF001


def test_units_are_named_with_their_number():
    assert row_words(replace(ROW, n=12, unit="pair"), METRICS).evidence == "n = 12 pairs"


def test_a_verdict_that_the_sign_flip_test_does_not_share_is_borderline():
    assert row_words(replace(ROW, p_value=0.06), METRICS).verdict == "worse, borderline"


def test_no_verdict_is_called_no_reliable_change():
    assert row_words(replace(ROW, improved=None), METRICS).verdict == "no reliable change"


def test_a_change_without_an_ideal_is_not_judged():
    assert row_words(replace(ROW, improved=None, ideal=None), METRICS).verdict == "not judged"


def test_a_missing_interval_is_said_to_be_missing():
    words = row_words(replace(ROW, ci95_delta=None), METRICS)

    assert words.change_interval == "not available"


def test_no_percent_is_given_of_a_value_of_zero():
    assert row_words(replace(ROW, before=0.0), METRICS).change_percent == ""


def test_a_metric_without_description_goes_by_its_name():
    assert row_words(ROW, {}).metric == ROW.metric


def test_an_end_that_rounds_to_zero_keeps_its_sign():
    assert signed_alike([-0.5, -1.0, -0.0004]) == ["−0.50", "−1.00", "−0.00"]  # noqa: RUF001


def test_rows_are_sorted_by_verdict_and_none_is_lost():
    rows = [*sample_rows(), replace(ROW, improved=None, ideal=None)]

    ordered = sort_rows(rows)

    lists = (ordered.improved, ordered.worse, ordered.unchanged, ordered.unjudged)
    assert sorted(id(row) for found in lists for row in found) == sorted(map(id, rows))
    assert ordered.unjudged == (rows[-1],)
    assert all(row.improved is False for row in ordered.worse)


def test_the_first_differing_word_is_split_off():
    common, before, after = first_difference(" was a thief.", " was a thinker. Yes")

    assert (common, before, after) == (" was a ", ("thief.", ""), ("thinker.", " Yes"))


def test_a_text_that_ends_first_has_no_differing_word():
    assert first_difference("it was", "it was late") == ("it was", ("", ""), (" late", ""))


def test_a_difference_between_words_marks_the_word_that_follows():
    texts = first_difference("inside. She", "inside.\nOne day")

    assert texts == ("inside.", (" She", ""), ("\nOne", " day"))


def test_equal_texts_have_no_difference():
    assert first_difference("same", "same") == ("same", ("", ""), ("", ""))


@given(st.text(), st.text())
def test_splitting_at_the_difference_loses_nothing(before, after):
    common, first, second = first_difference(before, after)

    assert common + "".join(first) == before
    assert common + "".join(second) == after


def column(*cells):
    """Return head and cells of a column as text."""
    (head,), rows = table_texts(Table(title="t", columns=("x",), rows=tuple((c,) for c in cells)))
    return head, [text for (text,) in rows]


def test_numbers_of_a_column_share_their_decimals():
    assert column(0.124854, -0.00123, None) == ("x", ["0.1249", "−0.0012", "–"])  # noqa: RUF001


def test_a_column_of_tiny_numbers_has_a_power_of_ten_in_its_head():
    assert column(1.2345e-5, -4e-7) == ("x ×10⁻⁶", ["12.35", "−0.40"])  # noqa: RUF001


def test_a_column_has_no_decimals_that_are_zero_throughout():
    assert column(-4.2, 0.65)[1] == ["−4.20", "0.65"]  # noqa: RUF001


def test_whole_numbers_and_words_are_left_as_they_are():
    assert column(7, 1234)[1] == ["7", "1234"]
    assert column("a", 0.5)[1] == ["a", "0.5"]


def test_a_cell_that_is_not_finite_says_so():
    assert column(0.5, float("nan"))[1] == ["0.5", "not finite"]


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (269_060_552, "269 MB"), (5 * 10**12, "5 TB")]
)
def test_sizes_use_the_decimal_unit_that_fits(size, text):
    assert size_text(size) == text


def test_one_unit_is_singular():
    assert (counted(1, "pair"), counted(2, "pair")) == ("1 pair", "2 pairs")


def test_a_table_with_a_short_row_is_refused():
    with pytest.raises(ValueError, match="a row has 1 cells"):
        Table(title="t", columns=("a", "b"), rows=(("x",),))


def test_control_characters_and_missing_glyphs_become_visible():
    assert printable("a\n\x07日") == "a⏎\\x07\\u65e5"


class TestPca:
    def test_loading_of_largest_magnitude_is_positive_whatever_the_sign_of_the_data(self):
        rows = np.random.default_rng(0).normal(size=(12, 7))

        for matrix in (rows, -rows):
            components = fit_pca(matrix).components
            assert all(row[np.abs(row).argmax()] > 0 for row in components)

    def test_on_ties_the_first_loading_decides(self):
        rows = np.outer([-1.0, 0.0, 1.0], [-1.0, 1.0])

        assert fit_pca(rows).components[0] == pytest.approx([2**-0.5, -(2**-0.5)])

    def test_coordinates_have_the_variance_that_the_eigenvalues_of_the_covariance_say(self):
        rows = np.random.default_rng(1).normal(size=(20, 6)) * [5, 3, 1, 1, 1, 1]
        eigenvalues = np.linalg.eigvalsh(np.cov(rows.T))[::-1]

        plane = fit_pca(rows)

        # Two float64 decompositions of a 20 x 6 matrix: far above their rounding.
        assert plane.coordinates.var(axis=0, ddof=1) == pytest.approx(eigenvalues[:2], rel=1e-9)
        assert plane.explained_variance_ratio == pytest.approx(
            eigenvalues[:2] / eigenvalues.sum(), rel=1e-9
        )

    def test_equal_rows_explain_nothing(self):
        assert fit_pca(np.ones((4, 3))).explained_variance_ratio.tolist() == [0.0, 0.0]

    def test_two_rows_are_too_few(self):
        assert fit_pca(np.ones((2, 3))) is None

    def test_one_column_has_an_empty_second_component(self):
        assert fit_pca(np.array([[1.0], [2.0], [4.0]])).coordinates[:, 1].tolist() == [0, 0, 0]


def test_only_rows_that_can_get_a_verdict_count_as_chances():
    neutral, few = replace(ROW, ideal=None), replace(ROW, n=4)

    note = chance_note([ROW] * 24 + [neutral] * 12 + [few] * 4)

    assert note.startswith("24 rows of the table can get a verdict")
    assert "about 1.2 of them" in note


def test_a_table_of_few_judged_rows_has_no_remark_on_chance():
    assert chance_note([ROW] * 8 + [replace(ROW, ideal=None)] * 4) == ""


@pytest.mark.parametrize(
    ("value", "shown"), [(-7.6e-19, 0.0), (1.1e-9, 0.0), (-3e-6, -3e-6), (0.0, 0.0)]
)
def test_what_float32_cannot_tell_from_nothing_is_shown_as_zero(value, shown):
    assert above_resolution(value, of=0.1) == shown
