"""Ratios of groups to the best-treated one, against values computed by hand."""

import pytest

from tests.report_samples import sample_rates
from workers.reports.group_rates import GroupRates, GroupValue, group_ratios, is_below_line
from workers.reports.wording import group_note, group_words


def differences(**changes):
    """Return a table in which low values are good."""
    groups = (
        GroupValue(group="gender", n=8, before=0.02, after=0.03),
        GroupValue(group="race", n=8, before=0.05, after=0.04),
    )
    fields = {"title": "t", "measure": "m", "best": "lowest", "unit": "pair", "groups": groups}
    return GroupRates(**{**fields, **changes})


def test_rate_is_divided_by_the_highest_rate():
    ratios = group_ratios([0.3, 0.6, 0.48], best="highest")

    assert ratios == pytest.approx([0.5, 1.0, 0.8], rel=1e-15)  # one rounding each


def test_of_low_values_the_lowest_is_divided_by_each():
    ratios = group_ratios([0.02, 0.05], best="lowest")

    assert ratios == pytest.approx([1.0, 0.4], rel=1e-15)  # one rounding each


@pytest.mark.parametrize("best", ["highest", "lowest"])
@pytest.mark.parametrize("values", [[0.4], [0.4, None], [0.0, 0.0], []])
def test_without_two_groups_or_with_zeros_alone_there_is_no_ratio(values, best):
    assert group_ratios(values, best=best) == [None] * len(values)


def test_a_group_without_a_value_has_no_ratio_and_sets_none():
    assert group_ratios([0.5, None, 0.25], best="highest") == [1.0, None, 0.5]


def test_a_lowest_value_of_zero_leaves_nothing_of_the_others():
    assert group_ratios([0.0, 0.2], best="lowest") == [1.0, 0.0]


def test_negative_values_are_refused():
    with pytest.raises(ValueError, match="0 or more"):
        group_ratios([0.1, -0.1], best="highest")


@pytest.mark.parametrize(
    ("ratio", "below"), [(0.79, True), (0.8, False), (1.0, False), (None, False)]
)
def test_line_itself_is_not_below_the_line(ratio, below):
    assert is_below_line(ratio) is below


def test_small_group_has_no_ratio_and_is_not_the_best():
    lines = {line.value.group: line for line in sample_rates().lines}

    assert lines["not stated"].ratio_before is None
    assert lines["men"].ratio_before == 1.0
    assert lines["women"].ratio_after == pytest.approx(0.9, rel=1e-15)  # 0.45 / 0.5


def test_ratio_just_below_the_line_does_not_read_as_on_it():
    table = differences(
        groups=(
            GroupValue(group="a", n=8, before=0.7999, after=0.29),
            GroupValue(group="b", n=8, before=1.0, after=1.0),
        ),
        best="highest",
        is_selection_rate=True,
    )

    first = group_words(table)[0]

    assert (first.ratio_before, first.below_before) == ("0.79", True)
    assert first.ratio_after == "0.29"


def test_values_that_are_no_selection_rates_are_said_to_be_none():
    assert "no selection rates" in group_note([differences()])
    assert "no selection rates" not in group_note([sample_rates()])


def test_values_that_are_no_selection_rates_are_never_marked():
    gender, race = group_words(differences())

    assert (gender.ratio_before, race.ratio_before) == ("1.00", "0.40")
    assert not any([gender.below_before, race.below_before, race.below_after])
    assert "0.8" not in group_note([differences()])
