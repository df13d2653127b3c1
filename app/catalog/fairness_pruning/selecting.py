"""Fields of the Fairness Pruning config that say how neurons are ranked, and how many go."""

from typing import Annotated, Literal

from pydantic import Field, StrictInt

from app.catalog.fairness_pruning.measuring import MeasuringConfig
from app.catalog.fairness_pruning.pairs import Prompt
from app.catalog.fairness_pruning.presets import DEFAULT_FRACTION
from app.catalog.fairness_pruning.sections import (
    FractionOfLayer,
    LayerIndices,
    LayerKey,
    NeuronIndices,
    StrictFloat,
)

Importance = Literal["max_abs", "ppm", "vow", "pon", "l2", "hybrid"]


class SelectingConfig(MeasuringConfig):
    """How neurons are ranked, and how many go."""

    importance: Importance = Field(
        default="max_abs",
        title="Importance",
        description=(
            "`max_abs` is the formula the article prints, `ppm` what its code computes. "
            "With scope `global` it ranks only the neurons of the control `importance_only`."
        ),
        examples=["ppm"],
    )
    calibration_texts: (
        Annotated[tuple[Prompt, ...], Field(min_length=1, max_length=2000, fail_fast=True)] | None
    ) = Field(
        default=None,
        title="Calibration texts",
        description="Ordinary text for the activation norms of `hybrid`; only and always with it.",
        examples=[["Once upon a time there was a little boat."]],
    )
    bias_weight: Annotated[StrictFloat, Field(ge=0, le=1)] = Field(
        default=0.5,
        title="Weight of bias",
        description=(
            "1 ranks by bias alone, 0 by lack of importance alone. Scope `global` compares raw "
            "bias scores, so it is always 1 there."
        ),
        examples=[0.5],
    )
    fraction: FractionOfLayer | None = Field(
        default=DEFAULT_FRACTION,
        title="Fraction",
        description=(
            "Share of each layer's neurons to remove, rounded down to whole neurons; with scope "
            "`global` of all neurons of the model. Give this or one of the other amounts, not two."
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
    neuron_indices: dict[LayerKey, NeuronIndices] | None = Field(
        default=None,
        title="Neurons by index",
        description="Exactly these neurons, by layer number; nothing is scored.",
        examples=[{"0": [12, 20, 105]}],
        min_length=1,
    )
    layers: Annotated[LayerIndices, Field(min_length=1)] | None = Field(
        default=None,
        title="Layers",
        description=(
            "Layers to remove from, counted from 0; null means all. With scope `global` the amount "
            "stays a share of the whole model, and only these layers are ranked."
        ),
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
            "or take what is in the top set of every category, or of any. Each top set has as many "
            "neurons as the amount says."
        ),
        examples=["pooled"],
    )
    round_to_multiple: Literal[8, 16, 32, 64, 128, 256] | None = Field(
        default=None,
        title="Round to a multiple",
        description=(
            "Make the number of neurons that a layer stores a multiple of this, as matrix units "
            "(8, 16), quantisers (32, 64, 128, 256) and tensor parallel splits (128, 256) need it."
        ),
        examples=[16],
    )
    round_direction: Literal["down", "up"] = Field(
        default="down",
        title="Rounding direction",
        description=(
            "`down` keeps fewer neurons than asked for, `up` more. With scope `global` only `up`: "
            "zero neurons then fill every layer up to the multiple."
        ),
        examples=["down"],
    )
