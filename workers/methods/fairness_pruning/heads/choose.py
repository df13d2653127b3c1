"""Choose the attention heads to take out, and those that each control takes out instead."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from app.catalog.fairness_pruning.config import FairnessPruningConfig
from app.catalog.fairness_pruning.head_section import AttentionHeadsConfig
from app.domain.attention import Attention
from workers.methods.fairness_pruning.heads.edits import HeadRemoval
from workers.methods.fairness_pruning.heads.importance import head_importance
from workers.methods.fairness_pruning.heads.measure import HEAD_BIAS, attention_of
from workers.methods.fairness_pruning.heads.observe import scaled_heads
from workers.methods.fairness_pruning.heads.selection import (
    HeadSelection,
    LayerScores,
    least_important_heads,
    random_heads,
    select_heads,
)
from workers.methods.fairness_pruning.measure_base import category_counts
from workers.methods.fairness_pruning.measuring.bias_scores import pooled_scores
from workers.methods.fairness_pruning.measuring.capture import Decoder
from workers.methods.fairness_pruning.measuring.outcomes import Removed
from workers.methods.fairness_pruning.measuring.pair_plan import PairPlan
from workers.methods.fairness_pruning.measuring.phase_data import (
    Arrays,
    pack_removed,
    stack_layers,
    unpack_removed,
)
from workers.methods.fairness_pruning.selecting.controls import IMPORTANCE_ONLY, random_name
from workers.runtime.context import Context, PhaseOutput

STATE = "attention_heads"
"""Key of what the edit phase keeps about heads."""


@dataclass(frozen=True, slots=True)
class HeadChoice:
    """The selection of heads, and the heads of each control by its name."""

    section: AttentionHeadsConfig
    attention: Attention
    selection: HeadSelection
    controls: Mapping[str, Removed]


def choose_heads(ctx: Context, before: PhaseOutput, plan: PairPlan) -> HeadChoice | None:
    """Score and select heads; None where the config does not ask for it."""
    config: FairnessPruningConfig = ctx.config
    section = config.attention_heads
    if section is None:
        return None
    attention = attention_of(ctx.model_dir)
    has_controls = config.controls.enabled and bool(plan.measured)
    importance: LayerScores = {}
    if section.head_indices is None or has_controls:
        importance = head_importance(ctx.model_dir, attention, should_stop=ctx.should_stop)
    selection = select_heads(
        _pooled_bias(before, plan, config),
        importance,
        section,
        attention.shape,
        bias_weight=config.bias_weight,
    )
    controls: dict[str, Removed] = {}
    if has_controls:
        removed, shape = selection.removed, attention.shape
        controls[IMPORTANCE_ONLY] = least_important_heads(removed, importance, section, shape)
        for draw in range(config.controls.random_seeds):
            controls[random_name(draw)] = random_heads(
                removed, section, shape, seed=ctx.seed, draw=draw
            )
    return HeadChoice(section, attention, selection, controls)


def removal_of(choice: HeadChoice | None) -> HeadRemoval | None:
    """Give what the edit needs to know."""
    return None if choice is None else HeadRemoval(choice.selection.removed, choice.section.mode)


def pack_heads(choice: HeadChoice | None) -> dict[str, Any]:
    """Write down which heads go, in JSON types; empty where the job has none."""
    if choice is None:
        return {}
    shape = choice.attention.shape
    state = {
        "mode": choice.section.mode,
        "removed": pack_removed(choice.selection.removed),
        "controls": {name: pack_removed(heads) for name, heads in choice.controls.items()},
        "heads": shape.heads,
        "key_value_heads": shape.key_value_heads,
        "head_dim": shape.head_dim,
        "importance_has_values": choice.attention.layout.value is not None,
    }
    return {STATE: state}


def unpack_removal(edit_state: Mapping[str, Any]) -> HeadRemoval | None:
    """Restore from the edit's state what `removal_of` gave."""
    state = edit_state.get(STATE)
    if state is None:
        return None
    return HeadRemoval(unpack_removed(state["removed"]), state["mode"])


def stack_head_scores(choice: HeadChoice | None) -> Arrays:
    """Stack the scores behind the choice, each (layers, heads), (0, 0) where not needed."""
    if choice is None:
        return {}
    selection = choice.selection
    return {
        "head_score": stack_layers(selection.scores),
        "head_bias": stack_layers(dict(selection.bias)),
        "head_importance": stack_layers(dict(selection.importance)),
    }


def masked_control(
    choice: HeadChoice | None, decoder: Decoder, name: str, *, device: str
) -> AbstractContextManager[None]:
    """Mask the heads that a control takes out, while its diagnosis runs."""
    if choice is None:
        return nullcontext()
    shape = choice.attention.shape
    factors = torch.ones(shape.layers, shape.heads, device=device)
    for layer, heads in choice.controls[name].items():
        factors[layer, list(heads)] = 0
    return scaled_heads(decoder, choice.attention, factors)


def _pooled_bias(before: PhaseOutput, plan: PairPlan, config: FairnessPruningConfig) -> LayerScores:
    by_category = before.arrays.get(HEAD_BIAS)
    if by_category is None or not len(by_category):
        return {}
    pooled = pooled_scores(
        by_category, category_counts(plan), pair_aggregation=config.pair_aggregation
    )
    return dict(enumerate(pooled))
