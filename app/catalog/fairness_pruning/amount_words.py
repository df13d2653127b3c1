"""Why a job takes another share of the neurons than the one that was asked for, in a sentence."""

from math import floor

from app.catalog.fairness_pruning.amounts import (
    global_count,
    requested_removals,
    requested_total,
)
from app.catalog.fairness_pruning.config import FairnessPruningConfig
from app.domain.architectures import MlpDimensions


def amount_difference(
    config: FairnessPruningConfig, dimensions: MlpDimensions, removed: int
) -> str | None:
    """Say by what rule `removed` neurons of the model were taken in place of those asked for.

    Returns
    -------
    str or None
        One sentence; None where nothing but rounding to whole neurons lies between the two.
    """
    if removed == _whole_neurons(config, dimensions):
        return None
    asked = requested_total(config, dimensions)
    taken, wanted = (
        f"{float(100 * count / (dimensions.layers * dimensions.neurons)):.4g} %"
        for count in (removed, asked)
    )
    return f"{_rule(config)}: this takes {taken} of all neurons, not the {wanted} asked for."


def _whole_neurons(config: FairnessPruningConfig, dimensions: MlpDimensions) -> int:
    """Count what was asked for, rounded down to whole neurons and to nothing else."""
    if config.scope == "global":
        return global_count(config, dimensions)
    return sum(map(floor, requested_removals(config, dimensions).values()))


def _rule(config: FairnessPruningConfig) -> str:
    if config.scope == "per_layer":
        return (
            f"Layers store a multiple of {config.round_to_multiple} neurons "
            f"(`round_to_multiple`, `round_direction` `{config.round_direction}`)"
        )
    if config.category_rule == "union":
        return "The rule `union` takes what is in the top set of any category"
    return "The rule `intersection` takes only what is in the top set of every category"
