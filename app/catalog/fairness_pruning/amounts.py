"""How many neurons each layer loses, in exact arithmetic.

Floats alone are wrong: int(29 / 100 * 100) is 28. A fraction is therefore taken as the decimal
that the user wrote.
"""

from collections.abc import Iterator
from fractions import Fraction
from math import ceil, floor

from app.catalog.fairness_pruning.config import FairnessPruningConfig
from app.domain.architectures import MlpDimensions
from app.domain.errors import Finding


def exact(number: float) -> Fraction:
    """Return the decimal that `number` was written as."""
    return Fraction(str(number))


def removal_counts(config: FairnessPruningConfig, dimensions: MlpDimensions) -> dict[int, int]:
    """Count the neurons to remove from each layer, every layer of the model included."""
    asked = requested_removals(config, dimensions)
    return {layer: _rounded(floor(n), config, dimensions.neurons) for layer, n in asked.items()}


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
    if out_of_range:
        return
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


def _amount_pointer(config: FairnessPruningConfig) -> str:
    fields = ("fraction_by_layer", "neurons_per_layer", "target_expansion", "neuron_indices")
    given = next((name for name in fields if getattr(config, name) is not None), "fraction")
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
    # Rounded up at the sixth decimal, so that the number shown does remove a neuron.
    smallest = ceil(Fraction(10**6, neurons)) / 10**6
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
        message = (
            f"{float(asked):g} of {neurons} neurons is less than one; the smallest fraction "
            f"that removes a neuron is 1/{neurons}, {smallest:.6f} rounded up."
        )
    return Finding(pointer=_amount_pointer(config), code="nothing_to_prune", message=message)


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
