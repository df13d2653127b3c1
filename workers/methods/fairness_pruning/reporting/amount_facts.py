"""How many neurons a job took, from where, and by which settings, in words."""

from collections.abc import Iterator, Sequence

from app.catalog.fairness_pruning.amount_words import amount_difference
from workers.methods.fairness_pruning.reporting.evidence import Evidence
from workers.reports.document import Fact

_SCOPES = {
    "per_layer": "each layer by itself (per_layer)",
    "global": "all layers together, the highest bias scores wherever they are (global)",
}
_RULES = {
    "pooled": "mean over all pairs (pooled)",
    "intersection": "in the top set of every category (intersection)",
    "union": "in the top set of any category (union)",
}
_ROUNDINGS = {
    ("per_layer", "down"): "down to a multiple of {multiple}: more neurons go than asked for",
    ("per_layer", "up"): "up to a multiple of {multiple}: fewer neurons go than asked for",
    ("global", "up"): "up to a multiple of {multiple}, filled with zero neurons",
}


def in_layers(counts: Sequence[int]) -> str:
    """Say how many parts each layer loses, from one count a layer of the model; some are above 0.

    As in "16 in each of 4 layers", "16 each in 2 of 4 layers", or "from 1 to 26 in 2 of 4 layers".
    """
    taken = [count for count in counts if count]
    low, high = min(taken), max(taken)
    if low == high and len(taken) == len(counts) > 1:
        return f"{low} in each of {len(counts)} layers"
    number = (
        f"from {low} to {high}" if low != high else f"{low}" if len(taken) == 1 else f"{low} each"
    )
    return f"{number} in {len(taken)} of {len(counts)} layer{'' if len(counts) == 1 else 's'}"


def difference_fact(evidence: Evidence) -> Iterator[Fact]:
    """Say why another share was taken than the one asked for; nothing if only rounding did it."""
    removed = sum(map(len, evidence.removed.values()))
    sentence = amount_difference(evidence.config, evidence.shape.dimensions, removed)
    if sentence is not None:
        yield Fact("Why another fraction", sentence.replace("`", ""))


def choice_facts(evidence: Evidence) -> Iterator[Fact]:
    """Name scope, rule of categories and rounding, as far as this job has them."""
    config = evidence.config
    yield Fact("Neurons compared within", _SCOPES[config.scope])
    if config.scope == "global":
        yield Fact("Rule for several categories", _RULES[config.category_rule])
    if config.round_to_multiple is not None:
        rounding = _ROUNDINGS[config.scope, config.round_direction]
        yield Fact("Neurons a layer stores", rounding.format(multiple=config.round_to_multiple))
