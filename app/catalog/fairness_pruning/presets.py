"""Fill a raw config before validation: preset values, the default amount, built-in pair sets.

Whatever the user wrote stands; a preset only fills what is absent. An amount given in another
unit takes the place of the preset's or the default `fraction`, a diagnosis alone has no amount, and
scope `global` no weight of importance.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from app.catalog.pair_sets import load_pair_set, pair_set_names

AMOUNT_FIELDS = (
    "fraction",
    "fraction_by_layer",
    "neurons_per_layer",
    "target_expansion",
    "top_k",
    "neuron_indices",
)

# The amounts that say how many neurons go from the whole model rather than from each layer.
GLOBAL_AMOUNTS = ("fraction", "top_k")

# A ranking over layers compares raw bias scores: importance has another scale in every layer.
GLOBAL_BIAS_WEIGHT = 1.0

# `pairs` comes last: while it still holds set names, they fill the other two.
PAIR_FIELDS = ("holdout_pairs", "control_pairs", "pairs")

# 0.2 % a layer: the amount of the article (16 of 8192 neurons in Llama-3.2-1B).
DEFAULT_FRACTION = 0.002

# A job that only looks shows all there is to see.
ALL_PLOTS = ("mean_diff", "pca", "heatmap", "layer_neuron")

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        # The article's notebook: its "MAW" importance is computed as peak to peak.
        "article": MappingProxyType(
            {
                "bias_point": "gate_up",
                "token_reduction": "abs_then_mean",
                "importance": "ppm",
                "bias_weight": 0.5,
                "fraction": DEFAULT_FRACTION,
                "mode": "prune",
            }
        ),
        # Defaults of the library optiPfair from 0.3 on.
        "optipfair": MappingProxyType(
            {
                "bias_point": "gate_up",
                "token_reduction": "mean_then_abs",
                "importance": "ppm",
                "bias_weight": 0.8,
            }
        ),
    }
)


def fill_in(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return `raw` with its preset, its amount and its pair sets written out."""
    filled = {**_preset_values(raw.get("preset")), **raw}
    others = any(filled.get(name) is not None for name in AMOUNT_FIELDS[1:])
    if (others or raw.get("diagnose_only") is True) and "fraction" not in raw:
        filled["fraction"] = None
    if raw.get("diagnose_only") is True and "plots" not in raw:
        filled["plots"] = ALL_PLOTS
    if raw.get("scope") == "global" and "bias_weight" not in raw:
        filled["bias_weight"] = GLOBAL_BIAS_WEIGHT
    return _with_pair_sets(filled)


def _preset_values(preset: object) -> Mapping[str, Any]:
    return PRESETS.get(preset, {}) if isinstance(preset, str) else {}


def _with_pair_sets(raw: dict[str, Any]) -> dict[str, Any]:
    """Replace names of built-in sets by their pairs.

    In each field a name stands for that part of the set. Sets named in `pairs` also bring their
    held-out and control pairs, unless the user gave some. Unknown names stay where they are, so
    that the field's own validation reports them.
    """
    named = raw.get("pairs")
    for field in PAIR_FIELDS:
        value = raw.get(field, named if pair_set_references(named) else None)
        names = pair_set_references(value)
        if names and set(names) <= set(pair_set_names()):
            raw[field] = _pairs_of(names, field)
    return raw


def _pairs_of(names: Sequence[str], field: str) -> list[dict[str, Any]]:
    sets = [load_pair_set(name) for name in dict.fromkeys(names)]
    return [
        {"prompt_1": pair.prompt_1, "prompt_2": pair.prompt_2, "category": pair.category}
        for one in sets
        for pair in getattr(one, field)
    ]


def pair_set_references(pairs: object) -> list[str]:
    """Return the set names in `pairs`, which is one name or a list of names; else nothing."""
    if isinstance(pairs, str):
        return [pairs]
    if isinstance(pairs, list | tuple) and pairs and all(isinstance(p, str) for p in pairs):
        return list(pairs)
    return []
