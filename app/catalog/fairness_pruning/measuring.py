"""Fields of the Fairness Pruning config that say what is compared, and how it is measured."""

from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictInt

from app.catalog.fairness_pruning.pairs import PromptPairs
from app.catalog.fairness_pruning.sections import AmplificationConfig, ControlsConfig
from app.catalog.method import MethodConfig


class MeasuringConfig(MethodConfig):
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
