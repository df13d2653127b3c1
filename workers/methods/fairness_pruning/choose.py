"""Choose the neurons to remove, and those that the controls remove instead."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from app.catalog.fairness_pruning.config import FairnessPruningConfig
from workers.methods.fairness_pruning.heads.choose import HeadChoice, choose_heads
from workers.methods.fairness_pruning.measure_base import category_counts
from workers.methods.fairness_pruning.measuring.bias_scores import pooled_scores
from workers.methods.fairness_pruning.measuring.outcomes import Removed
from workers.methods.fairness_pruning.measuring.pair_plan import PairPlan
from workers.methods.fairness_pruning.measuring.subject import Shape
from workers.methods.fairness_pruning.selecting.controls import (
    IMPORTANCE_ONLY,
    random_name,
    random_removal,
    removal_counts_of,
)
from workers.methods.fairness_pruning.selecting.global_selection import select_globally
from workers.methods.fairness_pruning.selecting.importance import importance_scores
from workers.methods.fairness_pruning.selecting.selection import (
    Selection,
    SelectionWarning,
    combined_scores,
    highest,
    select_neurons,
)
from workers.runtime.context import Context, PhaseOutput

LayerVectors = dict[int, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Choice:
    """The selection, and the scores behind it by layer; attention heads where asked for."""

    selection: Selection
    bias: LayerVectors
    importance: LayerVectors
    heads: HeadChoice | None = None

    @property
    def warnings(self) -> tuple[SelectionWarning, ...]:
        """What the user should know about the selection of neurons, and of heads."""
        heads = () if self.heads is None else self.heads.selection.warnings
        return (*self.selection.warnings, *heads)

    @property
    def takes_out_something(self) -> bool:
        """Whether any neuron or any head goes."""
        heads = {} if self.heads is None else self.heads.selection.removed
        return any(self.selection.removed.values()) or any(heads.values())


def choose(ctx: Context, before: PhaseOutput, plan: PairPlan, shape: Shape) -> Choice:
    """Choose neurons, and attention heads where the config asks for them."""
    neurons = choose_neurons(ctx, before, plan, shape)
    return replace(neurons, heads=choose_heads(ctx, before, plan))


def choose_neurons(ctx: Context, before: PhaseOutput, plan: PairPlan, shape: Shape) -> Choice:
    """Score and select. Importance is read from the weights, bias comes from phase one."""
    config: FairnessPruningConfig = ctx.config
    norms = before.arrays.get("activation_norms")
    importance: LayerVectors = {}
    if _needs_importance(config, plan):
        importance = importance_scores(
            ctx.model_dir,
            shape.layout,
            config.importance,
            activation_norms=None if norms is None else dict(enumerate(norms)),
            should_stop=ctx.should_stop,
        )
    bias = _pooled_bias(before, plan, config)
    if config.scope == "global":
        pooled = np.stack([bias[layer] for layer in range(shape.dimensions.layers)])
        by_category = dict(zip(plan.categories, before.arrays["bias_scores"], strict=True))
        selection = select_globally(pooled, by_category, config, shape.dimensions)
    else:
        selection = select_neurons(bias, importance, config, shape.dimensions)
    return Choice(selection=selection, bias=bias, importance=importance)


def control_removals(ctx: Context, choice: Choice, shape: Shape) -> dict[str, Removed]:
    """Neurons of each control, as many a layer as the selection removes."""
    config: FairnessPruningConfig = ctx.config
    counts = removal_counts_of(choice.selection.removed)
    least_important = {
        layer: highest(_by_importance_alone(choice.importance[layer]), count)
        for layer, count in counts.items()
    }
    controls: dict[str, Removed] = {IMPORTANCE_ONLY: least_important}
    for draw in range(config.controls.random_seeds):
        controls[random_name(draw)] = random_removal(
            counts, neurons=shape.dimensions.neurons, seed=ctx.seed, draw=draw
        )
    return controls


def _by_importance_alone(importance: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    return combined_scores(np.zeros_like(importance), importance, bias_weight=0.0)


def _needs_importance(config: FairnessPruningConfig, plan: PairPlan) -> bool:
    """Ask whether anything is ranked by importance: the selection, a control, or the map."""
    ranks_selection = config.neuron_indices is None and config.scope == "per_layer"
    ranks_control = config.controls.enabled and bool(plan.measured)
    return ranks_selection or ranks_control or bool(config.neuron_map)


def _pooled_bias(
    before: PhaseOutput, plan: PairPlan, config: FairnessPruningConfig
) -> LayerVectors:
    per_category = before.arrays.get("bias_scores")
    if per_category is None or not len(per_category):
        return {}
    pooled = pooled_scores(
        per_category, category_counts(plan), pair_aggregation=config.pair_aggregation
    )
    return dict(enumerate(pooled))
