"""How many attention heads each layer loses, and which requests a model cannot fulfil."""

from collections.abc import Iterator
from math import floor

from app.catalog.fairness_pruning.amounts import exact
from app.catalog.fairness_pruning.head_section import HEAD_AMOUNTS, AttentionHeadsConfig
from app.domain.attention import (
    UNSUPPORTED,
    Attention,
    AttentionShape,
    check_attention,
    kept_heads_obstacle,
    read_attention,
    removal_obstacle,
)
from app.domain.errors import Finding
from app.domain.models import ModelFacts

_POINTER = "/config/attention_heads"


def head_counts(config: AttentionHeadsConfig, shape: AttentionShape) -> dict[int, int]:
    """Count the query heads to take out of each layer, every layer of the model included.

    A fraction is rounded down: to whole heads, or in mode `remove` to whole groups.
    """
    layers = range(shape.layers)
    if config.head_indices is not None:
        return {layer: len(config.head_indices.get(layer, ())) for layer in layers}
    if config.heads_per_layer is not None:
        count = config.heads_per_layer
    else:
        unit = shape.group_size if config.mode == "remove" else 1
        count = floor(exact(config.fraction or 0) * shape.heads / unit) * unit
    return dict.fromkeys(layers, count)


def head_findings(config: AttentionHeadsConfig, facts: ModelFacts) -> Iterator[Finding]:
    """Find why this model's heads cannot be taken out as asked; its MLPs were checked before."""
    unsupported = check_attention(facts)
    if unsupported:
        yield from unsupported
        return
    attention = read_attention(facts)
    shape = attention.shape
    outside = list(_index_findings(config, shape))
    if outside:
        yield from outside
        return
    counts = head_counts(config, shape)
    pointer = f"{_POINTER}/{_given_amount(config)}"
    everything = [layer for layer, count in counts.items() if count >= shape.heads]
    if everything:
        message = (
            f"Layer {everything[0]} would lose all of its {shape.heads} heads; "
            f"at most {shape.heads - 1} can go."
        )
        yield Finding(pointer=pointer, code="prune_all", message=message)
    elif not any(counts.values()):
        yield _nothing(pointer, config, shape)
    elif config.mode == "remove":
        yield from _removal_findings(config, facts, attention, pointer=pointer)


def _removal_findings(
    config: AttentionHeadsConfig, facts: ModelFacts, attention: Attention, *, pointer: str
) -> Iterator[Finding]:
    """Demand whole groups, the same number in every layer, and a config that can say it."""
    obstacle = removal_obstacle(facts, attention)
    if obstacle is not None:
        message = f"Heads cannot be removed: {obstacle}. Set `mode` to `zero`."
        yield Finding(pointer=f"{_POINTER}/mode", code=UNSUPPORTED, message=message)
        return
    shape = attention.shape
    counts = head_counts(config, shape)
    split = _split_groups(config, shape)
    if split is not None:
        yield Finding(pointer=pointer, code=UNSUPPORTED, message=split)
    elif len(set(counts.values())) > 1:
        message = (
            f"Layers would lose from {min(counts.values())} to {max(counts.values())} heads, and "
            "a model has one number for all; name equally many in every layer, or set `mode` to "
            "`zero`."
        )
        yield Finding(pointer=pointer, code="uneven_layers", message=message)
    else:
        count = counts[0]
        reason = kept_heads_obstacle(attention, shape.heads - count)
        if reason is not None:
            message = (
                f"{count} of {shape.heads} heads cannot be removed: {reason}. Choose another "
                "number, or set `mode` to `zero`."
            )
            yield Finding(pointer=pointer, code=UNSUPPORTED, message=message)


def _split_groups(config: AttentionHeadsConfig, shape: AttentionShape) -> str | None:
    """Say which heads would be removed without the others of their group."""
    size = shape.group_size
    if config.heads_per_layer is not None and config.heads_per_layer % size:
        return f"{size} query heads share a key-value head and go together; give a multiple of it."
    for layer, heads in (config.head_indices or {}).items():
        whole = {head for n in shape.groups_of(list(heads)) for head in shape.heads_of(n)}
        alone = sorted(set(heads) - whole)
        if alone:
            group = shape.heads_of(shape.group_of(alone[0]))
            return (
                f"Head {alone[0]} of layer {layer} shares its key-value head with heads "
                f"{group[0]} to {group[-1]}; name all of them, or set `mode` to `zero`."
            )
    return None


def _nothing(pointer: str, config: AttentionHeadsConfig, shape: AttentionShape) -> Finding:
    unit = shape.group_size if config.mode == "remove" else 1
    what = "one head" if unit == 1 else f"one group of {unit} heads"
    message = (
        f"That is less than {what} of a layer's {shape.heads}; the smallest fraction is "
        f"{unit}/{shape.heads}."
    )
    return Finding(pointer=pointer, code="nothing_to_prune", message=message)


def _index_findings(config: AttentionHeadsConfig, shape: AttentionShape) -> Iterator[Finding]:
    for layer, heads in (config.head_indices or {}).items():
        pointer = f"{_POINTER}/head_indices/{layer}"
        if layer >= shape.layers:
            yield _bad_index(pointer, "layer", layer, shape.layers)
            continue
        wrong = [head for head in heads if head >= shape.heads]
        if wrong:
            yield _bad_index(pointer, "head", wrong[0], shape.heads)


def _bad_index(pointer: str, what: str, index: int, count: int) -> Finding:
    message = f"There is no {what} {index}; they are numbered from 0 to {count - 1}."
    return Finding(pointer=pointer, code="bad_index", message=message)


def _given_amount(config: AttentionHeadsConfig) -> str:
    return next(name for name in HEAD_AMOUNTS if getattr(config, name) is not None)
