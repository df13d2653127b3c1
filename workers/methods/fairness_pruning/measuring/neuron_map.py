"""Which neurons react to each category, and how far the sets of two categories overlap."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from workers.evaluation.bootstrap import generator_for

_RANDOM_DRAWS = 1000
_DEFAULT_SHARE = 0.01
Scores = npt.NDArray[np.float64]


def top_counts(removed: Mapping[int, Sequence[int]], *, neurons: int) -> dict[int, int]:
    """Size of the top set of each layer: as many as are removed, else 1 % and at least one."""
    fallback = max(1, int(neurons * _DEFAULT_SHARE))
    return {layer: len(indices) or fallback for layer, indices in removed.items()}


def ranks(scores: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.int64]:
    """Rank of each neuron, 1 for the highest score; among equals the lower index comes first."""
    order = np.argsort(-scores, kind="stable")
    result = np.empty(len(scores), dtype=np.int64)
    result[order] = np.arange(1, len(scores) + 1)
    return result


def neuron_map(
    scores: Mapping[str, Scores],
    *,
    counts: Mapping[int, int],
    importance: Mapping[int, npt.NDArray[np.floating[Any]]],
    pair_counts: Mapping[str, int],
    seed: int,
) -> dict[str, Any]:
    """Compare the top neurons of each category.

    Parameters
    ----------
    scores
        Raw bias scores by category, each (layers, neurons).
    counts
        Size of the top set of each layer.
    importance
        Importance score of each neuron by layer; may be empty.
    pair_counts
        Number of selection pairs by category. Scores are means over pairs, so sets of categories
        of unequal size are comparable.
    seed
        Seed of the random sets.
    """
    tops = {
        category: {layer: _top(values[layer], n) for layer, n in counts.items()}
        for category, values in scores.items()
    }
    neurons = next(iter(scores.values())).shape[1]
    return {
        "pair_counts": dict(pair_counts),
        "set_sizes": {str(layer): n for layer, n in counts.items()},
        "layers": {str(layer): _layer_neurons(layer, tops, scores, importance) for layer in counts},
        "overlap": [
            _pair_overlap(first, second, tops, counts, neurons, seed)
            for first, second in combinations(scores, 2)
        ],
        "shared_by_all": _shared_by_all(tops, counts, neurons, seed),
    }


def jaccard(intersection: float, size_1: int, size_2: int) -> float:
    """Jaccard index of two sets from their sizes; 0 for two empty ones."""
    union = size_1 + size_2 - intersection
    return intersection / union if union else 0.0


def _top(scores: Scores, count: int) -> frozenset[int]:
    return frozenset(int(n) for n in np.argsort(-scores, kind="stable")[:count])


def _layer_neurons(
    layer: int,
    tops: Mapping[str, Mapping[int, frozenset[int]]],
    scores: Mapping[str, Scores],
    importance: Mapping[int, npt.NDArray[np.floating[Any]]],
) -> list[dict[str, Any]]:
    bias_ranks = {category: ranks(values[layer]) for category, values in scores.items()}
    importance_ranks = ranks(importance[layer]) if layer in importance else None
    members = sorted(frozenset().union(*(sets[layer] for sets in tops.values())))
    return [
        {
            "neuron": neuron,
            "categories": [category for category in tops if neuron in tops[category][layer]],
            "score": {category: float(scores[category][layer, neuron]) for category in tops},
            "bias_rank": {category: int(bias_ranks[category][neuron]) for category in tops},
            "importance_rank": None if importance_ranks is None else int(importance_ranks[neuron]),
        }
        for neuron in members
    ]


def _pair_overlap(
    first: str,
    second: str,
    tops: Mapping[str, Mapping[int, frozenset[int]]],
    counts: Mapping[int, int],
    neurons: int,
    seed: int,
) -> dict[str, Any]:
    rng = generator_for(seed, f"overlap {first} {second}")
    by_layer = {}
    drawn_total = np.zeros(_RANDOM_DRAWS)
    shared_total = 0
    for layer, n in counts.items():
        shared = len(tops[first][layer] & tops[second][layer])
        # The overlap of two uniformly drawn sets is hypergeometric.
        drawn = rng.hypergeometric(n, neurons - n, n, size=_RANDOM_DRAWS)
        by_layer[str(layer)] = _against_random(shared, drawn, n)
        shared_total += shared
        drawn_total += drawn
    return {
        "categories": [first, second],
        "pooled": _against_random(shared_total, drawn_total, sum(counts.values())),
        "layers": by_layer,
    }


def _against_random(
    shared: int, drawn: npt.NDArray[np.floating[Any] | np.integer[Any]], size: int
) -> dict[str, float]:
    unions = np.maximum(2 * size - drawn, 1)
    indices = drawn / unions
    return {
        "jaccard": jaccard(shared, size, size),
        "random_mean": float(np.mean(indices)),
        "random_95th_percentile": float(np.percentile(indices, 95)),
    }


def _shared_by_all(
    tops: Mapping[str, Mapping[int, frozenset[int]]],
    counts: Mapping[int, int],
    neurons: int,
    seed: int,
) -> dict[str, Any]:
    rng = generator_for(seed, "shared by all categories")
    shared: dict[str, list[int]] = {}
    drawn_total = np.zeros(_RANDOM_DRAWS)
    for layer, n in counts.items():
        common = frozenset.intersection(*(sets[layer] for sets in tops.values()))
        shared[str(layer)] = sorted(common)
        drawn = np.full(_RANDOM_DRAWS, n)
        for _ in range(len(tops) - 1):
            drawn = rng.hypergeometric(drawn, neurons - drawn, n)
        drawn_total += drawn
    return {
        "neurons": shared,
        "count": sum(len(common) for common in shared.values()),
        "random_mean": float(drawn_total.mean()),
        "random_95th_percentile": float(np.percentile(drawn_total, 95)),
    }
