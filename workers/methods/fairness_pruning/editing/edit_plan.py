"""Decide what happens to each tensor of a checkpoint when neurons are removed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from app.catalog.fairness_pruning.config import FairnessPruningConfig
from app.catalog.fairness_pruning.widths import stored_width
from app.domain.architectures import (
    MlpDimensions,
    MlpLayout,
    Projection,
    TensorNames,
    check_mlps,
    find_layout,
)
from workers.methods.fairness_pruning.heads.edits import HeadRemoval, plan_head_edits
from workers.methods.fairness_pruning.selecting.removable import refused, require_removable
from workers.models.streaming import ZERO, Edit, Gather, Indices, Scale
from workers.models.tensor_files import CheckpointFiles


@dataclass(frozen=True, slots=True)
class EditPlan:
    """The edit of every tensor that changes.

    `neurons_after` is the size that all layers get; `padding_neurons` counts the zero neurons
    that fill up the layers that keep fewer. `config_fields` are the fields of config.json that
    change, in the section of the language model.
    """

    layout: MlpLayout
    dimensions: MlpDimensions
    edits: Mapping[str, Edit]
    neurons_after: int
    padding_neurons: Mapping[int, int]
    config_fields: Mapping[str, int]


def plan_edit(
    checkpoint: CheckpointFiles,
    removed: Mapping[int, Sequence[int]],
    config: FairnessPruningConfig,
    *,
    heads: HeadRemoval | None = None,
) -> EditPlan:
    """Decide what happens to each tensor.

    Parameters
    ----------
    checkpoint
        The base model; all of its layers must fit the layout of its family.
    removed
        Neurons to remove by layer; layers may be missing or empty.
    config
        Gives `mode`, `scale_factor` and `uneven`, and the multiple that zero neurons fill up to.
    heads
        Attention heads to take out as well.

    Raises
    ------
    JobFailure
        The model or the neurons do not fit, although both were checked before the job.
    """
    layout, dimensions, names = layout_of(checkpoint, resizes=config.mode == "prune")
    require_removable(removed, units="neurons", layers=dimensions.layers, width=dimensions.neurons)
    counts = {n: len(removed.get(n, ())) for n in range(dimensions.layers)}
    after, padding = stored_width(config, dimensions, counts), dict[int, int]()
    if config.mode == "prune":
        kept_counts = {n: dimensions.neurons - count for n, count in counts.items()}
        padding = {n: after - kept for n, kept in kept_counts.items() if kept < after}
    if padding and config.uneven == "error":
        raise refused("Layers would keep different numbers of neurons, and `uneven` is `error`.")
    edits: dict[str, Edit] = {}
    for layer in range(dimensions.layers):
        gone = sorted(removed.get(layer, ()))
        if gone:
            edits |= _layer_edits(
                checkpoint, layout, _Layer(layer, names, gone, dimensions, after, config)
            )
    fields = _size_fields(layout, dimensions, after)
    if heads is not None:
        head_edits = plan_head_edits(checkpoint, heads)
        edits |= head_edits.edits
        fields |= head_edits.config_fields
    return EditPlan(layout, dimensions, edits, after, padding, fields)


def _size_fields(layout: MlpLayout, dimensions: MlpDimensions, after: int) -> dict[str, int]:
    if after == dimensions.neurons:
        return {}
    if layout.size_field is None:
        raise ValueError("the size of a family without a size field cannot change")
    return {layout.size_field: after}


@dataclass(frozen=True, slots=True)
class _Layer:
    """What happens to the neurons of one layer."""

    number: int
    names: TensorNames
    removed: list[int]
    dimensions: MlpDimensions
    neurons_after: int
    config: FairnessPruningConfig

    def sources(self) -> Indices:
        """Say where each neuron of the result comes from."""
        if self.config.mode == "zero":
            sources = np.arange(self.dimensions.neurons, dtype=np.int64)
            sources[self.removed] = ZERO
            return sources
        kept = np.delete(np.arange(self.dimensions.neurons, dtype=np.int64), self.removed)
        padding = np.full(self.neurons_after - len(kept), ZERO, dtype=np.int64)
        return np.concatenate([kept, padding])


def _layer_edits(checkpoint: CheckpointFiles, layout: MlpLayout, layer: _Layer) -> dict[str, Edit]:
    """Plan the tensors of one layer; the bias of the down projection is never touched."""
    if layer.config.mode == "scale":
        down = layout.projection("down")
        if down is None:
            raise refused("The model's MLP has no down projection.")
        indices = np.array(layer.removed, dtype=np.int64)
        edit = Scale(down.neuron_axis, indices, layer.config.scale_factor)
        return {layer.names.weight(layer.number, down): edit}
    edits: dict[str, Edit] = {}
    present = {tensor.name for shard in checkpoint.shards for tensor in shard.tensors}
    sources = layer.sources()
    for projection in layout.projections:
        blocks = _block_sources(sources, projection, layer.dimensions.neurons)
        weight = layer.names.weight(layer.number, projection)
        edits[weight] = Gather(projection.neuron_axis, blocks)
        bias = layer.names.bias(layer.number, projection)
        if bias in present and not projection.is_down:
            edits[bias] = Gather(0, blocks)
    return edits


def _block_sources(sources: Indices, projection: Projection, neurons: int) -> Indices:
    """Repeat the choice for every block of a fused projection."""
    blocks = range(len(projection.roles))
    return np.concatenate([np.where(sources == ZERO, ZERO, sources + n * neurons) for n in blocks])


def layout_of(
    checkpoint: CheckpointFiles, *, resizes: bool
) -> tuple[MlpLayout, MlpDimensions, TensorNames]:
    """Find layout, dimensions and spelling of a checkpoint, all layers verified.

    Raises
    ------
    JobFailure
        The checkpoint does not fit any layout.
    """
    facts = checkpoint.facts()
    findings = check_mlps(facts, resizes=resizes)
    layout = find_layout(facts.model_type)
    if findings or layout is None:
        raise refused(findings[0].message if findings else "The family is not supported.")
    return layout, layout.dimensions(facts.config), layout.tensor_names(facts.tensors)
