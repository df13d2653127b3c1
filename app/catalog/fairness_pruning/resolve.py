"""Write out the choices that a Fairness Pruning config leaves open."""

from app.catalog.fairness_pruning.config import FairnessPruningConfig
from app.catalog.fairness_pruning.pairs import with_splits


def resolve(config: FairnessPruningConfig) -> FairnessPruningConfig:
    """Give every pair its split, decide whether there is a neuron map, and how heads are weighed.

    Presets, defaults and built-in sets are written out when the config is validated; a resolved
    config comes back unchanged.
    """
    pairs = with_splits(config.pairs, hold_out=not config.holdout_pairs)
    categories = {pair.category for pair in pairs if pair.category and pair.split == "selection"}
    written = config.model_dump()
    written["pairs"] = [pair.model_dump() for pair in pairs]
    for field, split in (("holdout_pairs", "holdout"), ("control_pairs", None)):
        written[field] = [{**pair.model_dump(), "split": split} for pair in getattr(config, field)]
    if config.neuron_map is None:
        written["neuron_map"] = len(categories) > 1
    heads = config.attention_heads
    if heads is not None and heads.bias_weight is None:
        written["attention_heads"]["bias_weight"] = config.bias_weight
    return FairnessPruningConfig.model_validate(written)
