"""Select the neurons of the whole model that react most, wherever they are.

Raw bias scores are compared, since a score that is normalised within a layer says nothing about
another layer. The order is that of score, layer and neuron, so no tie is left to chance.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from app.catalog.fairness_pruning.amounts import candidate_layers, global_count
from app.catalog.fairness_pruning.config import FairnessPruningConfig
from app.domain.architectures import MlpDimensions
from workers.methods.fairness_pruning.selecting.selection import (
    Selection,
    SelectionWarning,
    no_bias_signal,
    selection_of,
)

Scores = npt.NDArray[np.floating]
Mask = npt.NDArray[np.bool_]


def select_globally(
    pooled: Scores,
    by_category: Mapping[str, Scores],
    config: FairnessPruningConfig,
    dimensions: MlpDimensions,
) -> Selection:
    """Select the top neurons of the model by raw bias, or of each category, combined by the rule.

    A layer cannot lose all of its neurons: the last one by pooled score stays. With the rule
    `pooled` the next neuron in the ranking goes instead, so the number is as asked; the other
    rules take what their sets have in common, or have at all.

    Parameters
    ----------
    pooled
        Raw bias scores over all pairs, (layers, neurons).
    by_category
        The same for each category; used by the rules `intersection` and `union`.
    config, dimensions
        Amount, candidate layers and rule; the sizes of the model.
    """
    shape = (dimensions.layers, dimensions.neurons)
    if any(scores.shape != shape for scores in (pooled, *by_category.values())):
        raise ValueError("scores do not fit the model's dimensions")
    layers = candidate_layers(config, dimensions)
    count = global_count(config, dimensions)
    if count > len(layers) * (dimensions.neurons - 1):
        raise ValueError("more neurons are asked for than the layers can lose")
    # Sums in another order of pairs differ in the last digits of fp64; fp32 scores do not.
    ranked = pooled[layers].astype(np.float32)
    sets = [scores[layers].astype(np.float32) for scores in by_category.values()]
    chosen, spared = _choose(ranked, sets, config.category_rule, count)
    removed: dict[int, list[int]] = {layer: [] for layer in range(dimensions.layers)}
    for row, layer in enumerate(layers):
        removed[layer] = [int(neuron) for neuron in np.flatnonzero(chosen[row])]
    warnings = _warnings(chosen, ranked, [layers[row] for row in spared], count)
    scores = {layer: pooled[layer].astype(np.float32) for layer in range(dimensions.layers)}
    return selection_of(removed, scores, tuple(warnings), config, dimensions)


def _choose(pooled: Scores, sets: list[Scores], rule: str, count: int) -> tuple[Mask, list[int]]:
    """Choose by a rule; returns the choice and the rows from which one neuron was spared."""
    if rule == "pooled":
        chosen = top_mask(pooled, count)
    else:
        combine = np.logical_and if rule == "intersection" else np.logical_or
        chosen = np.asarray(combine.reduce([top_mask(scores, count) for scores in sets]))
    emptied = [int(row) for row in np.flatnonzero(chosen.all(axis=1))]
    if not emptied:
        return chosen, []
    rows = np.arange(len(pooled))
    last = np.argsort(-pooled, axis=1, kind="stable")[:, -1]
    if rule != "pooled":
        chosen[rows[emptied], last[emptied]] = False
        return chosen, emptied
    candidates = pooled.astype(np.float64)
    candidates[rows, last] = -np.inf
    return top_mask(candidates, count), emptied


def top_mask(scores: Scores, count: int) -> Mask:
    """Mark the `count` highest scores of (rows, neurons); ties go to lower rows, then neurons."""
    # A stable sort of the flattened rows keeps the order of row and neuron among equal scores.
    order = np.argsort(-scores.ravel(), kind="stable")
    mask = np.zeros(scores.size, dtype=bool)
    mask[order[:count]] = True
    return mask.reshape(scores.shape)


def _warnings(
    chosen: Mask, pooled: Scores, spared: list[int], count: int
) -> list[SelectionWarning]:
    warnings = [
        SelectionWarning(
            code="layer_spared",
            message=f"Layer {layer} would have lost all of its neurons: the one that reacts least "
            "stays.",
        )
        for layer in spared
    ]
    if count and not chosen.any():
        message = (
            "No neuron is in the top set of every category, so nothing was removed; ask for more "
            "neurons, or choose the rule `pooled` or `union`."
        )
        warnings.append(SelectionWarning(code="nothing_selected", message=message))
    elif chosen.any() and no_bias_signal(pooled[chosen].min(keepdims=True)):
        message = (
            "Some of the selected neurons do not react to the pairs at all; they were taken by "
            "layer and number to make up the amount. Ask for fewer."
        )
        warnings.append(SelectionWarning(code="no_bias_signal", message=message))
    return warnings
