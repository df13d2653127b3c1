"""Decide what happens to the tensors of the attention when heads are taken out.

Both modes move or clear bytes and compute nothing: what stays is bit-identical. The bias of the
output projection does not belong to a head and is never touched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from app.domain.attention import (
    HEAD_DIM_FIELD,
    KEY_VALUE_HEADS_FIELD,
    QUERY_HEADS_FIELD,
    Attention,
    kept_heads_obstacle,
    read_attention,
    removal_obstacle,
)
from workers.methods.fairness_pruning.selecting.removable import refused, require_removable
from workers.models.streaming import ZERO, Edit, Gather, Indices
from workers.models.tensor_files import CheckpointFiles

HeadMode = Literal["zero", "remove"]


@dataclass(frozen=True, slots=True)
class HeadRemoval:
    """Query heads to take out, by layer, and how; layers may be missing or empty."""

    removed: Mapping[int, Sequence[int]]
    mode: HeadMode


@dataclass(frozen=True, slots=True)
class HeadEdits:
    """The edit of every tensor that changes, and the fields of config.json that do."""

    edits: Mapping[str, Edit]
    config_fields: Mapping[str, int]


def plan_head_edits(checkpoint: CheckpointFiles, removal: HeadRemoval) -> HeadEdits:
    """Plan the edit that takes out query heads.

    Parameters
    ----------
    checkpoint
        The base model.
    removal
        Mode `zero` clears the heads' part of the output projection. `remove` shortens all
        projections by whole groups, the same number in every layer.

    Raises
    ------
    JobFailure
        The model or the heads do not fit, although both were checked before the job.
    """
    facts = checkpoint.facts()
    try:
        attention = read_attention(facts)
    except ValueError as exc:
        raise refused(f"{exc}") from exc
    shape = attention.shape
    require_removable(removal.removed, units="heads", layers=shape.layers, width=shape.heads)
    present = frozenset(facts.tensors)
    touched = {layer: sorted(heads) for layer, heads in sorted(removal.removed.items()) if heads}
    edits: dict[str, Edit] = {}
    if removal.mode == "zero" or not touched:
        for layer, heads in touched.items():
            edits |= _cleared(attention, layer, heads)
        return HeadEdits(edits, {})
    obstacle = removal_obstacle(facts, attention) or _uneven(touched, attention)
    if obstacle is not None:
        raise refused(f"Heads cannot be removed: {obstacle}.")
    for layer, heads in touched.items():
        edits |= _shortened(attention, layer, heads, present)
    return HeadEdits(edits, _fields_after(attention, len(touched[0])))


def _cleared(attention: Attention, layer: int, heads: list[int]) -> dict[str, Edit]:
    layout, shape = attention.layout, attention.shape
    sources = np.arange(shape.width, dtype=np.int64).reshape(shape.heads, shape.head_dim)
    sources[heads] = ZERO
    edit = Gather(layout.head_axis, sources.reshape(-1))
    return {attention.weight(layer, layout.output): edit}


def _shortened(
    attention: Attention, layer: int, heads: list[int], present: frozenset[str]
) -> dict[str, Edit]:
    layout, shape = attention.layout, attention.shape
    queries = _kept(shape.heads, heads, shape.head_dim)
    shared = _kept(shape.key_value_heads, shape.groups_of(heads), shape.head_dim)
    edits: dict[str, Edit] = {
        attention.weight(layer, layout.output): Gather(layout.head_axis, queries)
    }
    for module, sources in zip(layout.inputs, (queries, shared, shared), strict=True):
        edits[attention.weight(layer, module)] = Gather(0, sources)
        if attention.bias(layer, module) in present:
            edits[attention.bias(layer, module)] = Gather(0, sources)
    return edits


def _kept(blocks: int, removed: list[int], width: int) -> Indices:
    """Give the indices of all values but those of the removed blocks, ascending."""
    values = np.arange(blocks * width, dtype=np.int64).reshape(blocks, width)
    return np.delete(values, removed, axis=0).reshape(-1)


def _fields_after(attention: Attention, count: int) -> dict[str, int]:
    """Say how many heads are left; `head_dim` has to be explicit where it was derived before."""
    shape = attention.shape
    return {
        QUERY_HEADS_FIELD: shape.heads - count,
        KEY_VALUE_HEADS_FIELD: shape.key_value_heads - count // shape.group_size,
        HEAD_DIM_FIELD: shape.head_dim,
    }


def _uneven(touched: Mapping[int, list[int]], attention: Attention) -> str | None:
    shape = attention.shape
    counts = {len(touched.get(layer, ())) for layer in range(shape.layers)}
    if len(counts) > 1:
        return "layers would keep different numbers of heads"
    if any(len(shape.groups_of(h)) * shape.group_size != len(h) for h in touched.values()):
        return "some of the heads share their key-value head with heads that stay"
    return kept_heads_obstacle(attention, shape.heads - counts.pop())
