"""Which neurons and layers react most, against rankings that are known."""

import numpy as np

from workers.methods.fairness_pruning.measuring.reactions import TOP_NEURONS, strongest_reactions


def test_planted_neurons_lead_their_layers_with_their_importance() -> None:
    scores = np.full((2, 200), 0.1)
    scores[0, 7], scores[1, 150], scores[1, 3] = 4.0, 9.0, 5.0
    importance = {layer: np.arange(200.0) for layer in range(2)}

    found = strongest_reactions(scores, importance)

    first, second = (layer["neurons"] for layer in found["layers"])
    assert (first[0]["neuron"], first[0]["score"]) == (7, 4.0)
    assert [entry["neuron"] for entry in second[:2]] == [150, 3]
    # Importance rises with the number: neuron 150 of 0..199 has 49 above and 150 below it.
    assert second[0]["importance_rank"] == 50
    assert second[0]["importance_percentile"] == 100 * 150 / 199
    assert len(first) == TOP_NEURONS


def test_the_top_set_of_the_model_is_counted_where_it_sits() -> None:
    scores = np.random.default_rng(0).uniform(size=(3, 200))
    scores[2] += 1.0

    found = strongest_reactions(scores, {})

    assert found["top_count"] == 6
    assert [layer["in_top"] for layer in found["layers"]] == [0, 0, 6]
    assert found["layers"][0]["neurons"][0]["importance_rank"] is None


def test_equal_scores_go_to_the_lower_number_and_have_no_multiple_of_zero() -> None:
    found = strongest_reactions(np.zeros((1, 10)), {})

    entries = found["layers"][0]["neurons"]
    assert [entry["neuron"] for entry in entries] == list(range(TOP_NEURONS))
    assert entries[0]["times_layer_mean"] is None
