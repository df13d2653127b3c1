"""Intervals and p-values against closed forms, exact enumeration and known coverage."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.evaluation.bootstrap import (
    MIN_UNITS_FOR_CLAIM,
    generator_for,
    mean_interval,
    paired_difference_interval,
    sign_flip_p_value,
    summary_row,
)


def make_row(before, after, **changes):
    """Return the row of two samples, with an ideal of zero unless said otherwise."""
    settings_ = {"benchmark": "b", "metric": "m", "unit": "pair", "seed": 5, "ideal": 0.0}
    return summary_row(before=before, after=after, **{**settings_, **changes})


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_interval_of_a_large_normal_sample_is_the_closed_form(method):
    sample = np.random.default_rng(0).normal(3.0, 2.0, 4000)

    interval = mean_interval(sample, rng=generator_for(0, "x"), method=method)

    # Half-width 1.96 s/sqrt(n) = 0.062. The Monte Carlo error of one end with 2,000 resamples is
    # sqrt(p(1-p)/B)/phi(1.96) = 0.06 standard errors of the mean, i.e. 0.002; allow four of them.
    half = 1.96 * sample.std(ddof=1) / math.sqrt(len(sample))
    assert interval.ends == pytest.approx((sample.mean() - half, sample.mean() + half), abs=0.008)
    assert interval.method == method


def test_bca_moves_the_interval_towards_the_long_tail():
    sample = np.random.default_rng(3).exponential(1.0, 30)

    percentile = mean_interval(sample, rng=generator_for(0, "x"))
    bca = mean_interval(sample, rng=generator_for(0, "x"), method="bca")

    assert bca.low > percentile.low
    assert bca.high > percentile.high


@pytest.mark.parametrize("sample", [[], [2.0]])
def test_fewer_than_two_units_give_no_interval(sample):
    assert mean_interval(sample, rng=generator_for(0, "x")) is None


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_constant_units_give_the_value_itself(method):
    interval = mean_interval([0.1, 0.1, 0.1], rng=generator_for(0, "x"), method=method)

    assert interval.ends == (0.1, 0.1)
    assert interval.method == "constant"


def test_bca_falls_back_to_percentile_where_it_is_undefined():
    # The acceleration divides by a power of the jackknife spread, which underflows here.
    sample = [0.0, 0.0, 0.0, 0.0, 1e-300]

    interval = mean_interval(sample, rng=generator_for(0, "x"), method="bca")

    assert interval.method == "percentile"


@pytest.mark.parametrize("broken", [[1.0, math.nan], [1.0, math.inf], [[1.0, 2.0]]])
def test_values_that_are_not_one_finite_number_a_unit_are_refused(broken):
    with pytest.raises(ValueError, match="unit"):
        mean_interval(broken, rng=generator_for(0, "x"))


def test_pairs_of_unequal_length_are_refused():
    with pytest.raises(ValueError, match="before has 2 units and after has 3"):
        paired_difference_interval([1, 2], [1, 2, 3], rng=generator_for(0, "x"))


def test_paired_interval_ignores_the_spread_between_units():
    before = np.array([1.0, 10.0, 100.0, 1000.0, 10000.0, 5.0])
    after = before - np.array([1.0, 1.1, 0.9, 1.0, 1.05, 0.95])

    interval = paired_difference_interval(before, after, rng=generator_for(0, "x"))

    assert -1.1 <= interval.low <= interval.high <= -0.9


def test_the_same_seed_gives_the_same_row():
    before, after = np.random.default_rng(4).normal(size=(2, 20))

    assert make_row(before, after) == make_row(before, after)


def test_intervals_of_a_metric_do_not_depend_on_other_metrics():
    first = generator_for(7, "a").random()
    generator_for(7, "b").random()

    assert generator_for(7, "a").random() == first
    assert generator_for(7, "b").random() != first


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=30))
@settings(max_examples=25, deadline=None)
def test_an_interval_lies_within_the_values_seen(sample):
    interval = mean_interval(sample, rng=generator_for(0, "x"), n_resamples=200)

    # Means of resamples round differently from the values: 1e-9 is far above, 10 far below.
    assert min(sample) - 1e-9 <= interval.low <= interval.high <= max(sample) + 1e-9


def test_sign_flip_p_value_is_that_of_full_enumeration():
    before = np.zeros(7)
    after = np.array([0.5, -0.1, 0.9, 0.4, -0.3, 0.7, 0.2])
    flips = np.array(list(itertools.product([1, -1], repeat=7)))
    means = flips @ after / 7

    p = sign_flip_p_value(before, after, rng=generator_for(0, "x"))

    # Two-sided as twice the smaller tail; the null is symmetric, so this counts |mean|.
    assert p == pytest.approx(np.mean(np.abs(means) >= after.mean() - 1e-12))


def test_sign_flip_p_value_of_no_change_is_one():
    assert sign_flip_p_value([1, 2, 3], [1, 2, 3], rng=generator_for(0, "x")) == 1.0


def test_sign_flip_p_value_of_one_unit_is_unknown():
    assert sign_flip_p_value([1], [2], rng=generator_for(0, "x")) is None


def test_a_reliable_fall_towards_the_ideal_is_an_improvement():
    row = make_row(np.linspace(1, 2, 8), np.linspace(0.8, 1.7, 8))

    assert row.improved is True
    assert row.ci95_delta[1] < 0


def test_a_reliable_rise_away_from_the_ideal_is_a_deterioration():
    row = make_row(np.linspace(1, 2, 8), np.linspace(1.2, 2.3, 8))

    assert row.improved is False


def test_an_interval_that_includes_zero_supports_no_claim():
    row = make_row([1.0] * 8, [0.5, 1.5] * 4)

    assert row.improved is None
    assert row.ci95_delta[0] < 0 < row.ci95_delta[1]


def test_fewer_units_than_a_claim_needs_support_none():
    units = MIN_UNITS_FOR_CLAIM - 1

    row = make_row(np.full(units, 1.0), np.linspace(0.5, 0.6, units))

    assert row.ci95_delta[1] < 0
    assert row.improved is None


def test_identical_models_have_a_degenerate_interval_and_no_claim():
    before = np.linspace(1, 2, 8)

    row = make_row(before, before)

    assert (row.delta, row.ci95_delta, row.improved, row.p_value) == (0.0, (0.0, 0.0), None, 1.0)


def test_a_jump_over_the_ideal_to_the_same_distance_is_no_improvement():
    rng = np.random.default_rng(6)

    row = make_row(55 + rng.normal(size=30), 45 + rng.normal(size=30), ideal=50.0)

    assert row.ci95_delta[1] < 0
    assert row.improved is None


def test_a_jump_over_the_ideal_to_a_smaller_distance_is_an_improvement():
    rng = np.random.default_rng(6)

    row = make_row(60 + rng.normal(size=30), 48 + rng.normal(size=30), ideal=50.0)

    assert row.improved is True


def test_nearness_to_an_ideal_amid_the_units_is_judged_by_pairs():
    # Units spread over both sides of the ideal; each moves towards it by the same small step.
    before = np.linspace(-20, 60, 12)

    row = make_row(before, before - np.tile([1.0, 1.2], 6), ideal=0.0)

    assert row.improved is True


@pytest.mark.parametrize(("lower_is_better", "improved"), [(True, True), (False, False)])
def test_without_an_ideal_the_direction_decides(lower_is_better, improved):
    before = np.linspace(1, 2, 8)

    row = make_row(before, before - 0.5, ideal=None, lower_is_better=lower_is_better)

    assert row.improved is improved


def test_without_ideal_and_direction_a_change_is_neither_good_nor_bad():
    before = np.linspace(1, 2, 8)

    assert make_row(before, before - 0.5, ideal=None).improved is None


def test_a_row_without_units_has_no_numbers():
    row = make_row([], [])

    assert (row.before, row.after, row.delta, row.ci95_before, row.n) == (None,) * 4 + (0,)
