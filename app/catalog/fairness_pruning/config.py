"""The config of Fairness Pruning: what to measure, how to score, how many neurons to remove."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    StrictBool,
    StrictInt,
    model_validator,
)
from pydantic_core import PydanticCustomError

from app.catalog.fairness_pruning.pairs import Prompt, PromptPairs
from app.catalog.fairness_pruning.presets import AMOUNT_FIELDS, DEFAULT_FRACTION, fill_in
from app.catalog.fairness_pruning.sections import (
    AmplificationConfig,
    ControlsConfig,
    FractionOfLayer,
    GenerationConfig,
    LayerIndex,
    LayerKey,
    NeuronIndex,
    StrictFloat,
)
from app.catalog.method import MethodConfig

Importance = Literal["max_abs", "ppm", "vow", "pon", "l2", "hybrid"]
Plot = Literal["mean_diff", "pca", "heatmap", "layer_neuron"]


class _Diagnosis(MethodConfig):
    """What is compared, and how differences become bias scores."""

    preset: Literal["article", "optipfair"] | None = Field(
        default=None,
        title="Preset",
        description="Settings of a published run; fields given beside it win.",
        examples=["article"],
    )
    pairs: PromptPairs = Field(
        default=(),
        title="Prompt pairs",
        description=(
            "Pairs to find the neurons with, or one or more names of built-in sets. "
            "Required unless `neuron_indices` is given."
        ),
        examples=["gender", ["race", "gender"]],
    )
    holdout_pairs: PromptPairs = Field(
        default=(),
        title="Held-out pairs",
        description="Pairs that only test the result; none of them may be in `pairs`.",
        examples=["gender"],
    )
    control_pairs: PromptPairs = Field(
        default=(),
        title="Control pairs",
        description="Pairs that swap a neutral word, to show what an ordinary change does.",
        examples=["gender"],
    )
    controls: ControlsConfig = Field(
        default=ControlsConfig(),
        title="Controls",
        description="Removals of as many neurons to compare with.",
        examples=[{"enabled": True, "random_seeds": 5}],
    )
    amplification: AmplificationConfig = Field(
        default=AmplificationConfig(),
        title="Growth over depth",
        description="How the report tells from which layer on the prompts differ.",
        examples=[{"threshold": 0.10}],
    )
    neuron_map: StrictBool | None = Field(
        default=None,
        title="Neuron map",
        description=(
            "Compare the neurons that react to each category. "
            "Null: only with pairs of two or more categories."
        ),
        examples=[True],
    )
    bias_point: Literal["gate_up", "down_input"] = Field(
        default="gate_up",
        title="Where to measure",
        description="At the gate and up projections, or at the input of the down projection.",
        examples=["gate_up"],
    )
    token_reduction: Literal["abs_then_mean", "mean_then_abs"] = Field(
        default="abs_then_mean",
        title="Reduction over tokens",
        description="`mean_then_abs` lets differences of opposite sign cancel.",
        examples=["abs_then_mean"],
    )
    score_tokens: Literal["all", "affected"] = Field(
        default="all",
        title="Tokens that count",
        description="`affected` leaves out the tokens before the first difference.",
        examples=["all"],
    )
    pair_aggregation: Literal["mean", "max"] = Field(
        default="mean",
        title="Over pairs",
        description="How the scores of several pairs become one.",
        examples=["mean"],
    )
    on_length_mismatch: Literal["align", "skip", "error"] = Field(
        default="align",
        title="Pairs of unequal length",
        description="Compare what can be aligned, leave such pairs out, or refuse the job.",
        examples=["align"],
    )
    max_prompt_tokens: Annotated[StrictInt, Field(ge=1, le=8192)] = Field(
        default=512,
        title="Longest prompt",
        description="In tokens, special tokens included; longer prompts are refused.",
        examples=[512],
    )


class _Selection(_Diagnosis):
    """How neurons are ranked, and how many go."""

    importance: Importance = Field(
        default="max_abs",
        title="Importance",
        description="`max_abs` is the formula the article prints, `ppm` what its code computes.",
        examples=["ppm"],
    )
    calibration_texts: (
        Annotated[tuple[Prompt, ...], Field(min_length=1, max_length=2000)] | None
    ) = Field(
        default=None,
        title="Calibration texts",
        description="Ordinary text for the activation norms of `hybrid`; only and always with it.",
        examples=[["Once upon a time there was a little boat."]],
    )
    bias_weight: Annotated[StrictFloat, Field(ge=0, le=1)] = Field(
        default=0.5,
        title="Weight of bias",
        description="1 ranks by bias alone, 0 by lack of importance alone.",
        examples=[0.5],
    )
    fraction: FractionOfLayer | None = Field(
        default=DEFAULT_FRACTION,
        title="Fraction",
        description=(
            "Share of each layer's neurons to remove, rounded down to whole neurons. "
            "Give this or one of the other amounts, not two."
        ),
        examples=[0.01],
    )
    fraction_by_layer: dict[LayerKey, FractionOfLayer] | None = Field(
        default=None,
        title="Fraction by layer",
        description="Share by layer number; layers that are not named keep all neurons.",
        examples=[{"0": 0.01, "1": 0.02}],
        min_length=1,
    )
    neurons_per_layer: Annotated[StrictInt, Field(ge=1)] | None = Field(
        default=None,
        title="Neurons per layer",
        description="Number of neurons to remove from each layer.",
        examples=[16],
    )
    target_expansion: Annotated[StrictFloat, Field(gt=0)] | None = Field(
        default=None,
        title="Target expansion in percent",
        description="Neurons to keep in each layer, in percent of the hidden size.",
        examples=[390.0],
    )
    top_k: Annotated[StrictInt, Field(ge=1)] | None = Field(
        default=None,
        title="Number of neurons",
        description="Neurons to remove from the whole model; with scope `global` only.",
        examples=[64],
    )
    neuron_indices: (
        dict[LayerKey, Annotated[tuple[NeuronIndex, ...], Field(min_length=1)]] | None
    ) = Field(
        default=None,
        title="Neurons by index",
        description="Exactly these neurons, by layer number; nothing is scored.",
        examples=[{"0": [12, 20, 105]}],
        min_length=1,
    )
    layers: Annotated[tuple[LayerIndex, ...], Field(min_length=1)] | None = Field(
        default=None,
        title="Layers",
        description="Layers to remove from, counted from 0; null means all.",
        examples=[[0, 1, 2]],
    )
    scope: Literal["per_layer", "global"] = Field(
        default="per_layer",
        title="Scope",
        description=(
            "`per_layer` takes equally many neurons from every layer, `global` those with the "
            "highest bias score of the whole model, wherever they are."
        ),
        examples=["per_layer"],
    )
    category_rule: Literal["pooled", "intersection", "union"] = Field(
        default="pooled",
        title="Category rule",
        description=(
            "With scope `global` and pairs of several categories: rank by the mean over all pairs, "
            "or take what is in the top set of every category, or of any."
        ),
        examples=["pooled"],
    )
    round_to_multiple: Literal[8, 16, 32, 64, 128, 256] | None = Field(
        default=None,
        title="Round to a multiple",
        description="Make the number of kept neurons a multiple of this, for the matrix units.",
        examples=[16],
    )
    round_direction: Literal["down", "up"] = Field(
        default="down",
        title="Rounding direction",
        description="`down` keeps fewer neurons than asked for, `up` more.",
        examples=["down"],
    )


class FairnessPruningConfig(_Selection):
    """Settings of a Fairness Pruning job."""

    diagnose_only: StrictBool = Field(
        default=False,
        title="Diagnose only",
        description="Measure where the prompts differ, and change nothing.",
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
    plots: tuple[Plot, ...] = Field(
        default=("mean_diff", "pca"),
        title="Plots",
        description=(
            "Pictures to draw, each with its data as JSON. `heatmap` shows tokens by neurons, "
            "`layer_neuron` layers by neurons."
        ),
        examples=[["mean_diff", "pca", "heatmap"]],
    )
    plot_layers: tuple[LayerIndex, ...] | None = Field(
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

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, raw: Any) -> Any:
        return fill_in(raw) if isinstance(raw, Mapping) else raw

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _require_one_amount(self)
        _require_pairs(self)
        _require_distinct_indices(self)
        _require_fitting_options(self)
        return self


def _require_one_amount(config: FairnessPruningConfig) -> None:
    given = [name for name in AMOUNT_FIELDS if getattr(config, name) is not None]
    if len(given) != 1:
        raise PydanticCustomError(
            "one_amount",
            "Give exactly one of {fields}; given: {given}.",
            {"fields": ", ".join(AMOUNT_FIELDS), "given": ", ".join(given) or "none"},
        )


def _require_pairs(config: FairnessPruningConfig) -> None:
    if not config.pairs and config.neuron_indices is None:
        raise PydanticCustomError(
            "pairs_required",
            "Give `pairs`: at least one pair of prompts, or the name of a built-in set.",
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


def _require_distinct_indices(config: FairnessPruningConfig) -> None:
    lists: dict[str, tuple[int, ...]] = {"layers": config.layers or ()}
    lists["plot_layers"] = config.plot_layers or ()
    for layer, neurons in (config.neuron_indices or {}).items():
        lists[f"neuron_indices[{layer}]"] = neurons
    for field, numbers in lists.items():
        if len(set(numbers)) != len(numbers):
            raise PydanticCustomError(
                "bad_index", "`{field}` names a number twice; name each once.", {"field": field}
            )


def _require_fitting_options(config: FairnessPruningConfig) -> None:
    """Refuse options that would have no effect: they show that the user expects another job."""
    by_layer = config.fraction_by_layer is not None or config.neuron_indices is not None
    faults = {
        "`calibration_texts` is needed for importance `hybrid`.": config.importance == "hybrid"
        and config.calibration_texts is None,
        "`calibration_texts` is used by importance `hybrid` only.": config.importance != "hybrid"
        and config.calibration_texts is not None,
        "`scale_factor` is used by mode `scale` only.": config.mode != "scale"
        and config.scale_factor != 0,
        "`layers` cannot be combined with an amount that names layers.": by_layer
        and config.layers is not None,
        "`round_to_multiple` cannot be combined with `neuron_indices`.": (
            config.neuron_indices is not None and config.round_to_multiple is not None
        ),
        "`round_to_multiple` is used by mode `prune` only.": config.mode != "prune"
        and config.round_to_multiple is not None,
        "`holdout_pairs` are held out; leave their `split` out.": any(
            pair.split == "selection" for pair in config.holdout_pairs
        ),
        "`control_pairs` have no `split`; leave it out.": any(
            pair.split is not None for pair in config.control_pairs
        ),
        "`round_direction` needs `round_to_multiple`.": config.round_to_multiple is None
        and config.round_direction != "down",
    }
    for message, holds in faults.items():
        if holds:
            raise PydanticCustomError("conflicting_fields", message)
