"""Metrics, kept masks and growth over depth on hand-made diagnoses."""

import numpy as np
import pytest

from workers.methods.fairness_pruning.measuring.amplification import amplification, growth_curves
from workers.methods.fairness_pruning.measuring.capture import CapturePoint
from workers.methods.fairness_pruning.measuring.diagnosis import KEPT_POINTS, STATISTICS, Diagnosis
from workers.methods.fairness_pruning.measuring.metrics import (
    ATTENTION,
    MLP,
    PARITY,
    RELATIVE,
    pair_metrics,
    parity_on_kept,
    percent_reduction,
)
from workers.methods.fairness_pruning.measuring.outcomes import (
    EditOutcome,
    Mode,
    kept_mask_after,
    outcome_of_masked,
)

POINTS = tuple(CapturePoint)
LAYERS, PAIRS = 5, 3


def diagnosis(
    mean: float = 1.0, curve: list[float] | None = None, kept: float | None = None
) -> Diagnosis:
    statistics = {
        name: np.full((len(POINTS), LAYERS, PAIRS), mean if "mean" in name else 1.0)
        for name in STATISTICS
    }
    if curve is not None:
        statistics["affected_mean"][:] = np.array(curve)[None, :, None]
    n_sets = 0 if kept is None else 1
    kept_mean = np.full((n_sets, len(KEPT_POINTS), LAYERS, PAIRS), kept or 0.0)
    return Diagnosis(POINTS, statistics, KEPT_POINTS, kept_mean, kept_mean)


def test_parity_weighs_six_components_alike_and_leaves_out_the_down_projection_input() -> None:
    found = diagnosis(mean=0.0)
    found.statistics["mean"][POINTS.index(CapturePoint.GATE_PROJ)] = 6.0
    found.statistics["mean"][POINTS.index(CapturePoint.DOWN_PROJ_INPUT)] = 100.0

    metrics = pair_metrics(found)

    np.testing.assert_allclose(metrics[PARITY], 1.0)
    np.testing.assert_allclose(metrics[MLP], 0.0)
    np.testing.assert_allclose(metrics[ATTENTION], 0.0)


def test_relative_divides_by_the_magnitude_of_the_same_key() -> None:
    found = diagnosis(mean=0.3)
    found.statistics["scale"][:] = 2.0

    np.testing.assert_allclose(pair_metrics(found)[RELATIVE], 0.15)


def test_relative_weighs_what_attention_and_mlp_add_alike() -> None:
    found = diagnosis(mean=100.0)
    mean, scale = found.statistics["mean"], found.statistics["scale"]
    mean[POINTS.index(CapturePoint.ATTENTION_OUTPUT)] = 0.1
    mean[POINTS.index(CapturePoint.MLP_OUTPUT)] = 0.6
    scale[POINTS.index(CapturePoint.MLP_OUTPUT)] = 2.0

    metrics = pair_metrics(found)

    np.testing.assert_allclose(metrics[RELATIVE], (0.1 + 0.3) / 2)
    np.testing.assert_allclose(metrics[ATTENTION], 0.1)
    np.testing.assert_allclose(metrics[MLP], 0.6)


def test_parity_on_kept_replaces_gate_and_up_only() -> None:
    found = diagnosis(mean=1.0, kept=0.4)

    np.testing.assert_allclose(parity_on_kept(found, 0), (4 * 1.0 + 2 * 0.4) / 6)


def test_reduction_is_negative_when_it_grew_and_unknown_from_zero() -> None:
    assert percent_reduction(2.0, 2.5) == -25.0
    assert percent_reduction(0.0, 1.0) is None


def test_kept_neurons_of_a_padded_model_come_first() -> None:
    mask = kept_mask_after(
        {0: [1], 1: [0, 2, 3]}, mode="prune", layers=2, neurons=6, stored_neurons=5
    )

    assert mask.tolist() == [[True] * 5, [True] * 3 + [False] * 2]


@pytest.mark.parametrize(
    ("mode", "stored", "expected"),
    [("prune", 6, 0.4), ("prune", 7, 0.4 * 6 / 7), ("zero", 8, 0.3), ("scale", 8, 1.0)],
)
def test_masked_outcome_shows_what_the_stored_model_would_show(
    mode: Mode, stored: int, expected: float
) -> None:
    masked = diagnosis(mean=1.0, kept=0.4)
    removed = {layer: [0, 1] for layer in range(LAYERS)}

    outcome = outcome_of_masked(
        masked, np.zeros(PAIRS), removed, mode=mode, neurons=8, stored_neurons=stored
    )

    np.testing.assert_allclose(outcome.after[PARITY], (4 * 1.0 + 2 * expected) / 6)
    np.testing.assert_allclose(outcome.after_on_kept, (4 * 1.0 + 2 * 0.4) / 6)


def test_outcome_survives_storage() -> None:
    outcome = outcome_of_masked(
        diagnosis(kept=0.4),
        np.arange(3.0),
        {n: [0] for n in range(5)},
        mode="prune",
        neurons=8,
        stored_neurons=7,
    )

    again = EditOutcome.from_array(outcome.to_array())

    np.testing.assert_array_equal(again.to_array(), outcome.to_array())
    np.testing.assert_array_equal(again.behavioural, outcome.behavioural)


def test_onset_is_the_first_layer_above_the_threshold_attention_first() -> None:
    found = diagnosis(curve=[0.01, 0.05, 0.2, 0.3, 0.4])

    result = amplification(found, [0, 1, 2], [], threshold=0.1)

    assert result is not None
    assert result["onset"] == {"layer": 2, "component": "attention_output"}
    assert result["largest_jump"] == 2
    assert result["rank_correlation"] == pytest.approx(1.0)
    assert result["demographic"] is None


def test_a_curve_that_stays_low_has_no_onset() -> None:
    result = amplification(diagnosis(curve=[0.01] * 5), [0], [], threshold=0.1)

    assert result is not None
    assert result["onset"] is None
    assert result["slope"] == pytest.approx(0.0, abs=1e-12)


def test_slope_is_per_whole_depth() -> None:
    result = amplification(diagnosis(curve=[0.0, 0.1, 0.2, 0.3, 0.4]), [0], [], threshold=1.0)

    assert result is not None
    assert result["slope"] == pytest.approx(0.4)


def test_a_difference_that_shrinks_with_depth_is_not_said_to_grow() -> None:
    result = amplification(diagnosis(curve=[0.5, 0.3, 0.4, 0.2, 0.1]), [0], [], threshold=1.0)

    assert result is not None
    assert result["sentence"].endswith(
        "In the MLP outputs the difference does not grow with depth: it falls by 36 percentage "
        "points from the first layer to the last (rank correlation with depth \N{MINUS SIGN}0.90); "
        "the largest step up is at layer 2."
    )
    assert "grows" not in result["sentence"]


def test_a_level_difference_is_said_to_stay_level() -> None:
    result = amplification(diagnosis(curve=[0.2] * 5), [0], [], threshold=1.0)

    assert result is not None
    assert result["sentence"].endswith("does not grow with depth: it stays level.")


def test_a_mean_above_the_neutral_pairs_is_a_hint_with_its_numbers_of_pairs() -> None:
    found = diagnosis(curve=[0.2] * 5)
    found.statistics["affected_mean"][:, :, 2] = 0.05

    result = amplification(found, [0, 1], [2], threshold=0.1)

    assert result is not None
    assert "the mean of the 2 demographic pairs lies above nine in ten" in result["sentence"]
    assert "of the 1 neutral pair: a hint, and no test" in result["sentence"]


def test_growth_is_demographic_only_above_the_band_of_control_pairs() -> None:
    found = diagnosis(curve=[0.2] * 5)
    found.statistics["affected_mean"][:, :, 2] = 0.05

    above = amplification(found, [0, 1], [2], threshold=0.1)
    found.statistics["affected_mean"][:, :, 2] = 0.9
    below = amplification(found, [0, 1], [2], threshold=0.1)

    assert above is not None
    assert below is not None
    assert above["demographic"] is True
    assert below["demographic"] is False


def test_growth_curves_without_pairs_are_none() -> None:
    assert growth_curves(diagnosis(), []) == ()
