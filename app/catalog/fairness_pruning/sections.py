"""Number types and nested parts of the Fairness Pruning config."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    model_validator,
)
from pydantic_core import PydanticCustomError

_CLOSED = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _integer_key(key: object) -> object:
    """Accept the JSON spelling of a layer number; anything else is left for the type to refuse."""
    if isinstance(key, str) and key.isascii() and key.isdecimal() and str(int(key)) == key:
        return int(key)
    return key


StrictFloat = Annotated[float, Field(strict=True)]
LayerIndex = Annotated[StrictInt, Field(ge=0)]
LayerKey = Annotated[LayerIndex, BeforeValidator(_integer_key)]
NeuronIndex = Annotated[StrictInt, Field(ge=0)]
# Not every wrong index is named: there may be 100,000 of them.
LayerIndices = Annotated[tuple[LayerIndex, ...], Field(fail_fast=True)]
NeuronIndices = Annotated[tuple[NeuronIndex, ...], Field(min_length=1, fail_fast=True)]
FractionOfLayer = Annotated[StrictFloat, Field(ge=0, lt=1)]


class ControlsConfig(BaseModel):
    """Control edits that remove as many neurons, chosen at random or by importance alone."""

    model_config = _CLOSED

    enabled: StrictBool = Field(
        default=True,
        title="Run controls",
        description="Without controls the report makes no claim about the selection.",
        examples=[True],
    )
    random_seeds: Annotated[StrictInt, Field(ge=3, le=50)] = Field(
        default=5,
        title="Random draws",
        description="How many random selections to compare with.",
        examples=[5],
    )


class GenerationConfig(BaseModel):
    """Greedy beam search with the settings of the article; nothing is sampled."""

    model_config = _CLOSED

    max_pairs: Annotated[StrictInt, Field(ge=0, le=2000)] = Field(
        default=4,
        title="Pairs to continue",
        description="Both prompts of the first pairs are continued; 0 turns generation off.",
        examples=[4],
    )
    max_length: Annotated[StrictInt, Field(ge=1, le=4096)] | None = Field(
        default=50,
        title="Length in tokens",
        description="Prompt and continuation together. Null when `max_new_tokens` is given.",
        examples=[50],
    )
    max_new_tokens: Annotated[StrictInt, Field(ge=1, le=4096)] | None = Field(
        default=None,
        title="New tokens",
        description="Length of the continuation alone, in place of `max_length`.",
        examples=[40],
    )
    num_beams: Annotated[StrictInt, Field(ge=1, le=32)] = Field(
        default=5, title="Beams", description="Width of the beam search.", examples=[5]
    )
    early_stopping: StrictBool = Field(
        default=True,
        title="Early stopping",
        description="End the search when enough beams are complete.",
        examples=[True],
    )
    no_repeat_ngram_size: Annotated[StrictInt, Field(ge=0, le=64)] = Field(
        default=2,
        title="Unrepeated n-gram",
        description="Length in tokens of runs that may not occur twice; 0 allows all.",
        examples=[2],
    )

    @model_validator(mode="before")
    @classmethod
    def _one_length(cls, raw: Any) -> Any:
        if isinstance(raw, Mapping) and raw.get("max_new_tokens") is not None:
            return {"max_length": None, **raw}
        return raw

    @model_validator(mode="after")
    def _exactly_one_length(self) -> Self:
        if (self.max_length is None) == (self.max_new_tokens is None):
            raise PydanticCustomError(
                "one_length", "Give exactly one of `max_length` and `max_new_tokens`."
            )
        return self


class AmplificationConfig(BaseModel):
    """Where in the depth of the model the difference between the prompts grows."""

    model_config = _CLOSED

    threshold: Annotated[StrictFloat, Field(gt=0)] = Field(
        default=0.10,
        title="Threshold",
        description="Relative difference from which on a layer counts as the onset.",
        examples=[0.10],
    )
