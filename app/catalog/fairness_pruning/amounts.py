"""How many neurons each layer or, with scope `global`, the whole model loses, in exact arithmetic.

Floats alone are wrong: int(29 / 100 * 100) is 28. A fraction is therefore taken as the decimal
that the user wrote.
"""

from collections.abc import Iterator
from fractions import Fraction
from math import ceil, floor

from app.catalog.fairness_pruning.config import FairnessPruningConfig
from app.catalog.fairness_pruning.presets import AMOUNT_FIELDS, DEFAULT_FRACTION
from app.domain.architectures import MlpDimensions
from app.domain.errors import Finding


def exact(number: float) -> Fraction:
    """Return the decimal that `number` was written as."""
    return Fraction(str(number))


def removal_counts(config: FairnessPruningConfig, dimensions: MlpDimensions) -> dict[int, int]:
    """Count the neurons to remove from each layer, every layer of the model included.

    Raises
    ------
    ValueError
        The scope is `global`: what a layer loses is known only once its neurons are ranked.
    """
    if config.scope == "global":
        raise ValueError("with scope `global` a layer loses what the ranking takes from it")
    asked = requested_removals(config, dimensions)
    return {layer: _rounded(floor(n), config, dimensions.neurons) for layer, n in asked.items()}


def global_count(config: FairnessPruningConfig, dimensions: MlpDimensions) -> int:
    """Count the neurons of one top set of scope `global`, in the whole model.

    The rules `intersection` and `union` make one such set for each category.
    """
    return floor(requested_total(config, dimensions))


def requested_total(config: FairnessPruningConfig, dimensions: MlpDimensions) -> Fraction:
    """Say what was asked of the whole model, before rounding to whole neurons and multiples."""
    if config.scope == "per_layer":
        return sum(requested_removals(config, dimensions).values(), Fraction(0))
    if config.top_k is not None:
        return Fraction(config.top_k)
    return exact(config.fraction or 0) * dimensions.layers * dimensions.neurons


def candidate_layers(config: FairnessPruningConfig, dimensions: MlpDimensions) -> list[int]:
    """List the layers that may lose neurons, ascending."""
    return sorted(range(dimensions.layers) if config.layers is None else config.layers)


def requested_removals(
    config: FairnessPruningConfig, dimensions: MlpDimensions
) -> dict[int, Fraction]:
    """Say what was asked of each layer, before rounding to whole neurons and multiples."""
    layers = range(dimensions.layers)
    if config.neuron_indices is not None:
        return {n: Fraction(len(config.neuron_indices.get(n, ()))) for n in layers}
    if config.fraction_by_layer is not None:
        shares = config.fraction_by_layer
        return {n: exact(shares.get(n, 0)) * dimensions.neurons for n in layers}
    chosen = set(layers if config.layers is None else config.layers)
    amount = _uniform_amount(config, dimensions)
    return {n: amount if n in chosen else Fraction(0) for n in layers}


def _uniform_amount(config: FairnessPruningConfig, dimensions: MlpDimensions) -> Fraction:
    if config.neurons_per_layer is not None:
        return Fraction(config.neurons_per_layer)
    if config.target_expansion is not None:
        kept = floor(exact(config.target_expansion) * dimensions.hidden / 100)
        return Fraction(dimensions.neurons - kept)
    return exact(config.fraction or 0) * dimensions.neurons


def _rounded(removed: int, config: FairnessPruningConfig, neurons: int) -> int:
    """Round the number of kept neurons; a layer that loses nothing stays as it is."""
    multiple = config.round_to_multiple
    if multiple is None or removed <= 0:
        return removed
    blocks = Fraction(neurons - removed, multiple)
    whole = ceil(blocks) if config.round_direction == "up" else floor(blocks)
    return neurons - max(whole, 1) * multiple


def amount_findings(config: FairnessPruningConfig, dimensions: MlpDimensions) -> Iterator[Finding]:
    """Find amounts that this model cannot give up, and layers or neurons that it lacks."""
    out_of_range = list(_index_findings(config, dimensions))
    yield from out_of_range
    if out_of_range or config.diagnose_only:
        return
    if config.scope == "global":
        yield from _global_findings(config, dimensions)
    else:
        yield from _layer_findings(config, dimensions)


def _layer_findings(config: FairnessPruningConfig, dimensions: MlpDimensions) -> Iterator[Finding]:
    asked = requested_removals(config, dimensions)
    counts = removal_counts(config, dimensions)
    pointer = _amount_pointer(config)
    too_many = [layer for layer, n in counts.items() if n >= dimensions.neurons]
    if too_many:
        yield _prune_all(pointer, too_many[0], dimensions)
        return
    idle = [n for layer, n in asked.items() if n != 0 and counts[layer] <= 0]
    if config.target_expansion is not None and _uniform_amount(config, dimensions) == 0:
        idle.append(Fraction(0))
    if idle:
        yield _nothing_to_prune(config, dimensions, idle[0])
        return
    if config.mode == "prune" and config.uneven == "error" and len(set(counts.values())) > 1:
        yield Finding(
            pointer="/config/uneven",
            code="uneven_layers",
            message=(
                f"Layers would lose from {min(counts.values())} to {max(counts.values())} "
                "neurons, and a model has one size for all; remove equally many from every "
                "layer, or set `uneven` to `pad` or `mode` to `zero`."
            ),
        )
    untouched = [layer for layer, n in counts.items() if n == 0]
    if config.round_to_multiple is not None and 0 < len(untouched) < dimensions.layers:
        # Rounding would take more neurons from the other layers, and no layer would be smaller.
        message = (
            f"Layer {untouched[0]} keeps all of its {dimensions.neurons} neurons, and a model has "
            "one size for all: there is no width to round. Leave `round_to_multiple` out, or "
            "remove neurons from every layer."
        )
        yield Finding(
            pointer="/config/round_to_multiple", code="conflicting_fields", message=message
        )


def _global_findings(config: FairnessPruningConfig, dimensions: MlpDimensions) -> Iterator[Finding]:
    """Find amounts that are too small or too large wherever the ranking takes them from."""
    count, pointer = global_count(config, dimensions), _amount_pointer(config)
    total = dimensions.layers * dimensions.neurons
    layers = len(candidate_layers(config, dimensions))
    # Each layer keeps at least one neuron, since an MLP without any cannot be stored.
    available = layers * (dimensions.neurons - 1)
    asked = requested_total(config, dimensions)
    if count > available:
        message = (
            f"{count} neurons are too many: {layers} layers of {dimensions.neurons} neurons can "
            f"lose {available}, because each keeps at least one."
        )
        yield Finding(pointer=pointer, code="prune_all", message=message)
    elif asked > 0 and count == 0:
        message = _less_than_one(config, asked, total)
        yield Finding(pointer=pointer, code="nothing_to_prune", message=message)
    multiple = config.round_to_multiple
    if multiple is not None and dimensions.neurons % multiple:
        message = (
            f"The layers have {dimensions.neurons} neurons, no multiple of {multiple} themselves, "
            "so zero neurons might have to make them larger than before; choose a divisor of "
            f"{dimensions.neurons}."
        )
        yield Finding(
            pointer="/config/round_to_multiple", code="conflicting_fields", message=message
        )


def _amount_pointer(config: FairnessPruningConfig) -> str:
    given = next(name for name in AMOUNT_FIELDS if getattr(config, name) is not None)
    return f"/config/{given}"


def _prune_all(pointer: str, layer: int, dimensions: MlpDimensions) -> Finding:
    message = (
        f"Layer {layer} would lose all of its {dimensions.neurons} neurons; "
        f"at most {dimensions.neurons - 1} can go."
    )
    return Finding(pointer=pointer, code="prune_all", message=message)


def _nothing_to_prune(
    config: FairnessPruningConfig, dimensions: MlpDimensions, asked: Fraction
) -> Finding:
    neurons = dimensions.neurons
    if config.target_expansion is not None and asked <= 0:
        percent = Fraction(100 * neurons, dimensions.hidden)
        message = (
            f"The layers have {neurons} neurons, {float(percent):g} % of the hidden size "
            f"{dimensions.hidden}; give a `target_expansion` below that."
        )
    elif config.round_to_multiple is not None and floor(asked) > 0:
        message = (
            f"Rounded to a multiple of {config.round_to_multiple}, all {neurons} neurons stay; "
            "ask for more, choose a smaller multiple, or round down."
        )
    else:
        message = _less_than_one(config, asked, neurons)
    return Finding(pointer=_amount_pointer(config), code="nothing_to_prune", message=message)


def _less_than_one(config: FairnessPruningConfig, asked: Fraction, neurons: int) -> str:
    """Say that no neuron would go, and what to do; a user may not know of a default."""
    message = (
        f"{float(asked):g} of {neurons} neurons is less than one; the smallest fraction "
        f"that removes a neuron is 1/{neurons}, {_smallest_fraction(neurons)} rounded up."
    )
    if config.fraction == DEFAULT_FRACTION:
        message = (
            f"`fraction` is {DEFAULT_FRACTION} where no other amount is given: {message} "
            "Give a larger `fraction`, or another amount."
        )
    if config.attention_heads is not None and config.fraction is not None:
        message += " To take out attention heads and no neurons, give `fraction` 0."
    return message


def _smallest_fraction(neurons: int) -> str:
    # Rounded up, so that the number shown does remove a neuron; a large model needs more digits.
    digits = max(6, len(str(neurons)) + 1)
    return f"{ceil(Fraction(10**digits, neurons)) / 10**digits:.{digits}f}"


def _index_findings(config: FairnessPruningConfig, dimensions: MlpDimensions) -> Iterator[Finding]:
    named = {
        "layers": config.layers or (),
        "plot_layers": config.plot_layers or (),
        "fraction_by_layer": tuple(config.fraction_by_layer or ()),
        "neuron_indices": tuple(config.neuron_indices or ()),
    }
    for field, layers in named.items():
        wrong = [layer for layer in layers if layer >= dimensions.layers]
        if wrong:
            yield _bad_index(f"/config/{field}", "layer", wrong[0], dimensions.layers)
    for layer, neurons in (config.neuron_indices or {}).items():
        wrong = [neuron for neuron in neurons if neuron >= dimensions.neurons]
        if wrong:
            pointer = f"/config/neuron_indices/{layer}"
            yield _bad_index(pointer, "neuron", wrong[0], dimensions.neurons)


def _bad_index(pointer: str, what: str, index: int, count: int) -> Finding:
    message = f"There is no {what} {index}; they are numbered from 0 to {count - 1}."
    return Finding(pointer=pointer, code="bad_index", message=message)
