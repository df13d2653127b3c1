"""Overlap of the neurons that react to different categories."""

import numpy as np
import pytest

from workers.methods.fairness_pruning.measuring.neuron_map import neuron_map, ranks, top_counts

LAYERS, NEURONS, TOP = 3, 200, 20


def scores_with_top(start: int) -> np.ndarray:
    scores = np.tile(np.linspace(0.1, 0.0, NEURONS), (LAYERS, 1))
    scores[:, start : start + TOP] += 1.0
    return scores


def mapped(scores: dict[str, np.ndarray]) -> dict:
    return neuron_map(
        scores,
        counts=dict.fromkeys(range(LAYERS), TOP),
        importance={},
        pair_counts=dict.fromkeys(scores, 4),
        seed=3,
    )


def test_equal_sets_have_jaccard_one() -> None:
    result = mapped({"a": scores_with_top(0), "b": scores_with_top(0)})

    assert result["overlap"][0]["pooled"]["jaccard"] == 1.0
    assert result["shared_by_all"]["count"] == LAYERS * TOP


def test_disjoint_sets_have_jaccard_zero() -> None:
    result = mapped({"a": scores_with_top(0), "b": scores_with_top(100)})

    assert result["overlap"][0]["pooled"]["jaccard"] == 0.0
    assert result["shared_by_all"]["count"] == 0


def test_half_shared_sets_have_jaccard_one_third_in_each_layer_and_pooled() -> None:
    (entry,) = mapped({"a": scores_with_top(0), "b": scores_with_top(TOP // 2)})["overlap"]

    assert entry["pooled"]["jaccard"] == pytest.approx(1 / 3)
    assert [layer["jaccard"] for layer in entry["layers"].values()] == pytest.approx([1 / 3] * 3)


def test_independent_sets_lie_inside_the_random_band() -> None:
    rng = np.random.default_rng(11)
    inside = 0
    for _ in range(40):
        scores = {name: rng.random((LAYERS, NEURONS)) for name in "ab"}
        pooled = mapped(scores)["overlap"][0]["pooled"]
        inside += pooled["jaccard"] <= pooled["random_95th_percentile"]

    # 38 expected; fewer than 33 of 40 has a probability below 0.5 % at 95 %.
    assert inside >= 33


def test_expected_overlap_of_random_sets_is_that_of_the_hypergeometric_law() -> None:
    result = mapped({"a": scores_with_top(0), "b": scores_with_top(100), "c": scores_with_top(50)})

    # Three sets of 20 of 200 share 20 * 0.1 * 0.1 neurons a layer on average.
    assert result["shared_by_all"]["random_mean"] == pytest.approx(LAYERS * 0.2, abs=0.1)


def test_neurons_are_listed_with_their_categories_and_ranks() -> None:
    result = mapped({"a": scores_with_top(0), "b": scores_with_top(10)})

    entry = next(item for item in result["layers"]["0"] if item["neuron"] == 10)
    assert entry["categories"] == ["a", "b"]
    assert entry["bias_rank"] == {"a": 11, "b": 1}
    assert entry["importance_rank"] is None


def test_ranks_give_ties_to_the_lower_index() -> None:
    assert ranks(np.array([0.5, 0.9, 0.5])).tolist() == [2, 1, 3]


def test_layers_that_lose_nothing_are_compared_by_their_top_percent() -> None:
    assert top_counts({0: [4, 5], 1: []}, neurons=300) == {0: 2, 1: 3}
