"""Which neurons react most to the swapped words, and in which layers they sit."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from workers.methods.fairness_pruning.measure_base import category_counts
from workers.methods.fairness_pruning.measuring.bias_scores import pooled_scores
from workers.methods.fairness_pruning.measuring.neuron_map import ranks
from workers.methods.fairness_pruning.reporting.evidence import Evidence

# A list to look at; every score of a category's top set is in neuron_map.json.
TOP_NEURONS = 5
# Of all neurons of the model, the share whose layers are counted: 1 %, as in the neuron map.
TOP_SHARE = 0.01

Scores = npt.NDArray[np.float64]


def reactions_entry(evidence: Evidence) -> dict[str, Any] | None:
    """Describe the neurons of the base model that react most; None where none was scored."""
    scores = pooled_bias(evidence)
    if scores is None:
        return None
    importance = evidence.edit.arrays["importance"]
    return strongest_reactions(scores, dict(enumerate(importance)))


def pooled_bias(evidence: Evidence) -> Scores | None:
    """Raw bias score of every neuron over all selection pairs, (layers, neurons)."""
    by_category = evidence.before.arrays.get("bias_scores")
    if by_category is None or not len(by_category):
        return None
    return pooled_scores(
        by_category,
        category_counts(evidence.plan),
        pair_aggregation=evidence.config.pair_aggregation,
    )


def strongest_reactions(
    scores: Scores, importance: Mapping[int, npt.NDArray[np.floating[Any]]]
) -> dict[str, Any]:
    """List the top neurons of each layer, and count where those of the whole model sit.

    Parameters
    ----------
    scores
        Raw bias scores, (layers, neurons). They compare across layers, unlike scores that are
        normalised in each layer.
    importance
        Importance scores by layer, (neurons,) each; may be empty.

    Returns
    -------
    dict
        `unit`; `top_share` and `top_count`, the size of the set counted over the whole model; and
        `layers`, one entry a layer: `mean_score`, `max_score`, `in_top` (members of that set) and
        `neurons`, the highest scores with `times_layer_mean` and the rank and percentile of their
        importance (rank 1 and percentile 100 are the most important neuron).
    """
    count = max(1, int(TOP_SHARE * scores.size))
    top = np.argsort(-scores, axis=None, kind="stable")[:count]
    in_top = np.bincount(top // scores.shape[1], minlength=len(scores))
    return {
        "unit": "mean absolute activation difference",
        "top_share": TOP_SHARE,
        "top_count": count,
        "layers": [
            {
                "layer": layer,
                "mean_score": float(values.mean()),
                "max_score": float(values.max()),
                "in_top": int(in_top[layer]),
                "neurons": _top_neurons(values, importance.get(layer)),
            }
            for layer, values in enumerate(scores)
        ],
    }


def _top_neurons(
    scores: Scores, importance: npt.NDArray[np.floating[Any]] | None
) -> list[dict[str, Any]]:
    order = np.argsort(-scores, kind="stable")[:TOP_NEURONS]
    mean = float(scores.mean())
    by_importance = None if importance is None else ranks(importance)
    entries = []
    for neuron in order.tolist():
        rank = None if by_importance is None else int(by_importance[neuron])
        entries.append(
            {
                "neuron": neuron,
                "score": float(scores[neuron]),
                "times_layer_mean": float(scores[neuron]) / mean if mean else None,
                "importance_rank": rank,
                "importance_percentile": None if rank is None else _percentile(rank, len(scores)),
            }
        )
    return entries


def _percentile(rank: int, count: int) -> float:
    """Share of the other neurons that matter less, in percent."""
    return 100.0 * (count - rank) / (count - 1) if count > 1 else 100.0
