"""Combine bias and importance into one score, and select the neurons to remove from each layer.

Everything runs on the CPU in a fixed order: among equal scores the lower index goes first. The
other scope, which ranks the neurons of all layers together, is in `global_selection`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from app.catalog.fairness_pruning.amounts import removal_counts, requested_total
from app.catalog.fairness_pruning.config import FairnessPruningConfig
from app.domain.architectures import MlpDimensions

Vector = npt.NDArray[np.float32]

# Keeps min-max scaling finite; below it a layer shows no reaction at all (method, 3.3).
_EPSILON = np.float32(1e-8)


@dataclass(frozen=True, slots=True)
class SelectionWarning:
    """Something about the selection that the user should know."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Selection:
    """The neurons to remove.

    `removed` has every layer, each list ascending. `scores` is empty where neurons were named by
    index. Fractions are of all neurons of the model: as asked for, and as carried out.
    """

    removed: dict[int, list[int]]
    scores: dict[int, Vector]
    warnings: tuple[SelectionWarning, ...]
    requested_fraction: float
    effective_fraction: float


def combined_scores(
    bias: npt.NDArray[np.floating], importance: npt.NDArray[np.floating], *, bias_weight: float
) -> Vector:
    """Score the neurons of one layer for removal; a high score goes first.

    Parameters
    ----------
    bias
        Reaction to the swapped word, shape (I,). A layer whose largest value is below 1e-8
        shows none, and is ranked by importance alone.
    importance
        Structural importance, shape (I,).
    bias_weight
        Weight of bias, from 0 to 1.

    Returns
    -------
    ndarray
        float32, shape (I,), in [0, 1].
    """
    # With full weight on a bias that is not there, every score would be 0 and indices would rank.
    weight = np.float32(0 if no_bias_signal(bias) else bias_weight)
    lack = np.float32(1) - _min_max(importance)
    score = weight * _min_max(bias) + (np.float32(1) - weight) * lack
    clipped: Vector = np.clip(score, 0, 1)
    return clipped


def no_bias_signal(bias: npt.NDArray[np.floating]) -> bool:
    """Say whether a layer shows no reaction to the swapped words."""
    return float(np.max(bias)) < float(_EPSILON)


def _min_max(values: npt.NDArray[np.floating]) -> Vector:
    exact = values.astype(np.float32)
    low, high = exact.min(), exact.max()
    if low == high:
        return np.zeros_like(exact)
    scaled: Vector = (exact - low) / (high - low + _EPSILON)
    return scaled


def highest(scores: npt.NDArray[np.floating], count: int) -> list[int]:
    """Return the indices of the `count` highest scores, ascending; ties go to lower indices."""
    order = np.argsort(-scores, kind="stable")
    return sorted(int(index) for index in order[:count])


def select_neurons(
    bias: Mapping[int, npt.NDArray[np.floating]],
    importance: Mapping[int, npt.NDArray[np.floating]],
    config: FairnessPruningConfig,
    dimensions: MlpDimensions,
) -> Selection:
    """Select the neurons to remove from each layer.

    Parameters
    ----------
    bias, importance
        Scores by layer, each of shape (I,); unused where the config names neurons by index.
    config, dimensions
        Amount, layers, rounding and `bias_weight`; the sizes of the model.
    """
    if config.neuron_indices is not None:
        named = config.neuron_indices
        removed = {n: sorted(named.get(n, ())) for n in range(dimensions.layers)}
        return selection_of(removed, {}, (), config, dimensions)
    counts = removal_counts(config, dimensions)
    for scores in (bias, importance):
        if any(n not in scores or scores[n].shape != (dimensions.neurons,) for n in counts):
            raise ValueError("scores do not fit the model's dimensions")
    combined = {
        n: combined_scores(bias[n], importance[n], bias_weight=config.bias_weight) for n in counts
    }
    removed = {n: highest(combined[n], count) for n, count in counts.items()}
    warnings = tuple(
        SelectionWarning(
            code="no_bias_signal",
            message=f"Layer {n} does not react to the pairs: it is ranked by importance alone.",
        )
        for n, count in counts.items()
        if count and config.bias_weight > 0 and no_bias_signal(bias[n])
    )
    return selection_of(removed, combined, warnings, config, dimensions)


def selection_of(
    removed: dict[int, list[int]],
    scores: dict[int, Vector],
    warnings: tuple[SelectionWarning, ...],
    config: FairnessPruningConfig,
    dimensions: MlpDimensions,
) -> Selection:
    """Put a selection together with the share of all neurons that it was meant to be, and is."""
    total = dimensions.layers * dimensions.neurons
    asked = requested_total(config, dimensions)
    return Selection(
        removed=removed,
        scores=scores,
        warnings=warnings,
        requested_fraction=float(asked / total),
        effective_fraction=sum(map(len, removed.values())) / total,
    )
