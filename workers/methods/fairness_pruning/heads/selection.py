"""Select the attention heads to take out, and those that the controls take out instead.

Scores are combined as for neurons, per layer. In mode `remove` heads go in groups that share a
key-value head, and a group's score is the mean over its heads. Ties go to lower indices.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from app.catalog.fairness_pruning.head_section import AttentionHeadsConfig
from app.catalog.fairness_pruning.heads import head_counts
from app.domain.attention import AttentionShape
from workers.evaluation.bootstrap import generator_for
from workers.methods.fairness_pruning.measuring.outcomes import Removed
from workers.methods.fairness_pruning.selecting.controls import random_name
from workers.methods.fairness_pruning.selecting.selection import (
    SelectionWarning,
    Vector,
    combined_scores,
    highest,
    no_bias_signal,
)
from workers.reports.wording import counted

LayerScores = Mapping[int, npt.NDArray[np.floating]]


@dataclass(frozen=True, slots=True)
class HeadSelection:
    """The heads to take out.

    `removed` has every layer, each list ascending; `scores` is empty where heads were named by
    index. The other two are the scores behind it, empty where they were not needed.
    """

    removed: dict[int, list[int]]
    scores: dict[int, Vector]
    bias: LayerScores
    importance: LayerScores
    warnings: tuple[SelectionWarning, ...] = ()


def select_heads(
    bias: LayerScores,
    importance: LayerScores,
    config: AttentionHeadsConfig,
    shape: AttentionShape,
    *,
    bias_weight: float,
) -> HeadSelection:
    """Select the heads to take out of each layer.

    Parameters
    ----------
    bias, importance
        Scores by layer, each of shape (heads,); unused where the config names heads by index.
    config, shape
        Amount and mode; the sizes of the model's attention.
    bias_weight
        Weight of bias against lack of importance, where the config leaves it to the neurons'.
    """
    if config.head_indices is not None:
        named = {n: sorted(config.head_indices.get(n, ())) for n in range(shape.layers)}
        return HeadSelection(named, {}, bias, importance, tuple(_large_edit(named, shape)))
    counts = head_counts(config, shape)
    weight = bias_weight if config.bias_weight is None else config.bias_weight
    scores = {n: combined_scores(bias[n], importance[n], bias_weight=weight) for n in counts}
    removed = {n: _highest_heads(scores[n], count, config, shape) for n, count in counts.items()}
    silent = tuple(
        SelectionWarning(
            code="no_bias_signal",
            message=(
                f"The attention heads of layer {n} do not react to the pairs: they are ranked by "
                "importance alone."
            ),
        )
        for n, count in counts.items()
        if count and weight > 0 and no_bias_signal(bias[n])
    )
    warnings = (*silent, *_large_edit(removed, shape))
    return HeadSelection(removed, scores, bias, importance, warnings)


def _large_edit(removed: Removed, shape: AttentionShape) -> Iterator[SelectionWarning]:
    """Warn of layers that lose more than half of their heads."""
    large = [layer for layer, heads in removed.items() if 2 * len(heads) > shape.heads]
    if large:
        most = max(large, key=lambda layer: len(removed[layer]))
        yield SelectionWarning(
            code="large_edit",
            message=(
                f"More than half of the attention heads are taken out in "
                f"{counted(len(large), 'layer')} (layer {most}: {len(removed[most])} of "
                f"{shape.heads}). Little of the model may be left; take out fewer."
            ),
        )


def random_heads(
    removed: Removed, config: AttentionHeadsConfig, shape: AttentionShape, *, seed: int, draw: int
) -> dict[int, list[int]]:
    """Draw as many heads of each layer as `removed` has: whole groups in mode `remove`.

    The generator is not that of the neurons, whose draws are the same with and without heads.
    """
    rng = generator_for(seed, f"{random_name(draw)} of heads")

    def draw_units(units: int, count: int) -> list[int]:
        return sorted(int(n) for n in rng.choice(units, size=count, replace=False))

    return {n: _whole_heads(len(heads), config, shape, draw_units) for n, heads in removed.items()}


def least_important_heads(
    removed: Removed, importance: LayerScores, config: AttentionHeadsConfig, shape: AttentionShape
) -> dict[int, list[int]]:
    """Take as many heads of each layer as `removed` has, by importance alone."""
    return {
        layer: _highest_heads(
            combined_scores(np.zeros_like(importance[layer]), importance[layer], bias_weight=0.0),
            len(heads),
            config,
            shape,
        )
        for layer, heads in removed.items()
    }


def _highest_heads(
    scores: npt.NDArray[np.floating],
    count: int,
    config: AttentionHeadsConfig,
    shape: AttentionShape,
) -> list[int]:
    def take_units(units: int, number: int) -> list[int]:
        return highest(scores.reshape(units, -1).mean(axis=1), number)

    return _whole_heads(count, config, shape, take_units)


def _whole_heads(
    count: int,
    config: AttentionHeadsConfig,
    shape: AttentionShape,
    choose: Callable[[int, int], list[int]],
) -> list[int]:
    """Let `choose` pick heads of a layer, or groups, by (number of them, how many to pick)."""
    if config.mode == "zero":
        return choose(shape.heads, count)
    groups = choose(shape.key_value_heads, count // shape.group_size)
    return [head for group in groups for head in shape.heads_of(group)]
