"""The config of Fairness Pruning: what to measure, how to score, how many neurons to remove."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StrictBool, model_validator
from pydantic_core import PydanticCustomError

from app.catalog.fairness_pruning.head_section import AttentionHeadsConfig
from app.catalog.fairness_pruning.pairs import with_splits
from app.catalog.fairness_pruning.presets import (
    AMOUNT_FIELDS,
    GLOBAL_AMOUNTS,
    GLOBAL_BIAS_WEIGHT,
    fill_in,
)
from app.catalog.fairness_pruning.sections import GenerationConfig, LayerIndices, StrictFloat
from app.catalog.fairness_pruning.selecting import SelectingConfig

Plot = Literal["mean_diff", "pca", "heatmap", "layer_neuron"]

# With a single category every category rule selects the same.
MIN_CATEGORIES = 2


class FairnessPruningConfig(SelectingConfig):
    """Settings of a Fairness Pruning job."""

    diagnose_only: StrictBool = Field(
        default=False,
        title="Diagnose only",
        description=(
            "Measure where the prompts differ, and change nothing. The amount of a preset is "
            "ignored, and no amount or option of an edit may be given."
        ),
        examples=[False],
    )
    mode: Literal["prune", "zero", "scale"] = Field(
        default="prune",
        title="Mode",
        description="Remove the neurons, set them to zero, or scale down what they contribute.",
        examples=["prune"],
    )
    scale_factor: Annotated[StrictFloat, Field(ge=0, lt=1)] = Field(
        default=0.0,
        title="Scale factor",
        description="What is left of a neuron's contribution in mode `scale`.",
        examples=[0.5],
    )
    uneven: Literal["pad", "error"] = Field(
        default="pad",
        title="Unequal layers",
        description=(
            "A model has one size for all layers: fill shorter layers with zero neurons, "
            "or refuse the job."
        ),
        examples=["pad"],
    )
    attention_heads: AttentionHeadsConfig | None = Field(
        default=None,
        title="Attention heads",
        description=(
            "Take out attention heads as well, an extension that the article does not have. With "
            "`fraction` 0 no neuron goes beside them."
        ),
        examples=[{"heads_per_layer": 1}],
    )
    plots: tuple[Plot, ...] = Field(
        default=("mean_diff", "pca"),
        title="Plots",
        description=(
            "Pictures to draw, each with its data as JSON. `heatmap` shows tokens by neurons, "
            "`layer_neuron` layers by neurons."
        ),
        examples=[["mean_diff", "pca", "heatmap"]],
    )
    plot_layers: LayerIndices | None = Field(
        default=None,
        title="Layers to plot",
        description=(
            "Layers with a PCA plot and a heat map; null means the first, the middle and the last."
        ),
        examples=[[0, 8, 15]],
    )
    pca_include_special: StrictBool = Field(
        default=False,
        title="Special tokens in PCA",
        description="Tokens such as BOS carry very large activations and would own the first axis.",
        examples=[False],
    )
    generation: GenerationConfig = Field(
        default=GenerationConfig(),
        title="Generation",
        description="Continuations of the prompts, before and after.",
        examples=[{"max_pairs": 2, "max_new_tokens": 40}],
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto",
        title="Precision of the diagnosis",
        description="Stored weights keep their own precision.",
        examples=["float32"],
    )

    @property
    def writes_model(self) -> bool:
        """Whether there is an edit at all."""
        return not self.diagnose_only

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, raw: Any) -> Any:
        return fill_in(raw) if isinstance(raw, Mapping) else raw

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.diagnose_only:
            _require_no_edit(self)
        else:
            _require_one_amount(self)
            _require_fitting_scope(self)
            _require_fitting_options(self)
        _require_pairs(self)
        _require_fitting_pairs(self)
        _require_distinct_entries(self)
        return self


EDIT_FIELDS = (
    *AMOUNT_FIELDS,
    "mode",
    "scale_factor",
    "uneven",
    "round_to_multiple",
    "round_direction",
    "layers",
    "scope",
    "category_rule",
    "controls",
    "attention_heads",
)
"""Fields that only an edit uses."""


def _conflict(message: str, **fields: object) -> PydanticCustomError:
    return PydanticCustomError("conflicting_fields", message, fields)


def _require_no_edit(config: FairnessPruningConfig) -> None:
    """Refuse options of an edit; their defaults stand, so that a written-out config is valid."""
    for field in EDIT_FIELDS:
        # `fill_in` leaves no amount where only a diagnosis is asked for.
        unset = (
            None
            if field in AMOUNT_FIELDS
            else FairnessPruningConfig.model_fields[field].get_default()
        )
        if getattr(config, field) != unset:
            raise _conflict(
                "`{field}` has no effect with `diagnose_only`; leave one of the two out.",
                field=field,
            )


def _require_one_amount(config: FairnessPruningConfig) -> None:
    given = _given_amounts(config)
    if len(given) != 1:
        raise PydanticCustomError(
            "one_amount",
            "Give exactly one of {fields}; given: {given}.",
            {"fields": ", ".join(AMOUNT_FIELDS), "given": ", ".join(given) or "none"},
        )


def _given_amounts(config: FairnessPruningConfig) -> list[str]:
    return [name for name in AMOUNT_FIELDS if getattr(config, name) is not None]


def _require_fitting_scope(config: FairnessPruningConfig) -> None:
    """Refuse what the other scope needs, and what a ranking over all layers cannot promise."""
    if config.scope == "per_layer":
        faults = {
            "`top_k` counts over the whole model; set `scope` to `global`, or give "
            "`neurons_per_layer`.": config.top_k is not None,
            "`category_rule` needs scope `global`.": config.category_rule != "pooled",
        }
    else:
        (amount,) = _given_amounts(config)
        faults = {
            f"`{amount}` counts by layer; with scope `global` give `fraction` or `top_k`.": (
                amount not in GLOBAL_AMOUNTS
            ),
            "Scope `global` ranks by bias alone; leave `bias_weight` out.": (
                config.bias_weight != GLOBAL_BIAS_WEIGHT
            ),
            "Scope `global` takes what it finds from each layer, so `uneven` cannot be `error`.": (
                config.uneven == "error"
            ),
            "With scope `global` a width can only be rounded up, by zero neurons; set "
            "`round_direction` to `up`.": (
                config.round_to_multiple is not None and config.round_direction == "down"
            ),
        }
        faults |= _category_faults(config)
    _refuse(faults)


def _category_faults(config: FairnessPruningConfig) -> dict[str, bool]:
    """Check that a rule over categories has some: pairs held out do not count."""
    if config.category_rule == "pooled":
        return {}
    pairs = with_splits(config.pairs, hold_out=not config.holdout_pairs)
    categories = {pair.category for pair in pairs if pair.split == "selection"}
    return {
        "This `category_rule` needs a `category` on each of `pairs`.": None in categories,
        "This `category_rule` needs `pairs` of two or more categories, held-out pairs not "
        "counted; with one, `pooled` is the same.": len(categories) < MIN_CATEGORIES,
    }


def _require_pairs(config: FairnessPruningConfig) -> None:
    if not config.pairs and config.neuron_indices is None:
        raise PydanticCustomError(
            "pairs_required",
            "Give `pairs`: at least one pair of prompts, or the name of a built-in set.",
        )
    heads = config.attention_heads
    if not config.pairs and heads is not None and heads.head_indices is None:
        raise PydanticCustomError(
            "pairs_required", "Give `pairs` to score attention heads by, or `head_indices`."
        )
    if config.pairs and all(pair.split == "holdout" for pair in config.pairs):
        raise PydanticCustomError(
            "pairs_required", "All of `pairs` are held out; leave at least one for selection."
        )
    known = {pair.key for pair in config.pairs}
    for index, pair in enumerate(config.holdout_pairs):
        if pair.key in known:
            raise PydanticCustomError(
                "holdout_overlap",
                "Pair {index} of `holdout_pairs` is also in `pairs`; a held-out pair must be new.",
                {"index": index},
            )


def _require_fitting_pairs(config: FairnessPruningConfig) -> None:
    faults = {
        "`calibration_texts` is needed for importance `hybrid`.": config.importance == "hybrid"
        and config.calibration_texts is None,
        "`calibration_texts` is used by importance `hybrid` only.": config.importance != "hybrid"
        and config.calibration_texts is not None,
        "`holdout_pairs` are held out; leave their `split` out.": any(
            pair.split == "selection" for pair in config.holdout_pairs
        ),
        "`control_pairs` have no `split`; leave it out.": any(
            pair.split is not None for pair in config.control_pairs
        ),
    }
    _refuse(faults)


def _require_distinct_entries(config: FairnessPruningConfig) -> None:
    lists: dict[str, tuple[int | str, ...]] = {
        "layers": config.layers or (),
        "plot_layers": config.plot_layers or (),
        "plots": config.plots,
    }
    for layer, neurons in (config.neuron_indices or {}).items():
        lists[f"neuron_indices[{layer}]"] = neurons
    for field, entries in lists.items():
        if len(set(entries)) != len(entries):
            raise PydanticCustomError(
                "repeated_entry" if field == "plots" else "bad_index",
                "`{field}` names something twice; name each once.",
                {"field": field},
            )


def _require_fitting_options(config: FairnessPruningConfig) -> None:
    """Refuse options that would have no effect: they show that the user expects another job."""
    by_layer = config.fraction_by_layer is not None or config.neuron_indices is not None
    faults = {
        "`scale_factor` is used by mode `scale` only.": config.mode != "scale"
        and config.scale_factor != 0,
        "`layers` cannot be combined with an amount that names layers.": by_layer
        and config.layers is not None,
        "`round_to_multiple` cannot be combined with `neuron_indices`.": (
            config.neuron_indices is not None and config.round_to_multiple is not None
        ),
        "`round_to_multiple` is used by mode `prune` only.": config.mode != "prune"
        and config.round_to_multiple is not None,
        "`round_direction` needs `round_to_multiple`.": config.round_to_multiple is None
        and config.round_direction != "down",
    }
    _refuse(faults)


def _refuse(faults: Mapping[str, bool]) -> None:
    for message, holds in faults.items():
        if holds:
            raise _conflict(message)
