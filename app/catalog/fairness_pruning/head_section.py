"""The config section of attention heads, an extension of the method."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StrictInt, model_validator
from pydantic_core import PydanticCustomError

from app.catalog.fairness_pruning.sections import LayerKey, NeuronIndices, StrictFloat

HEAD_AMOUNTS = ("heads_per_layer", "fraction", "head_indices")


class AttentionHeadsConfig(BaseModel):
    """Which attention heads to take out beside the neurons, and how. Not part of the article."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    heads_per_layer: Annotated[StrictInt, Field(ge=1)] | None = Field(
        default=None,
        title="Heads per layer",
        description=(
            "Number of query heads to take out of each layer. In mode `remove`, a multiple of the "
            "number of query heads that share a key-value head."
        ),
        examples=[1],
    )
    fraction: Annotated[StrictFloat, Field(gt=0, lt=1)] | None = Field(
        default=None,
        title="Fraction of heads",
        description=(
            "Share of each layer's heads, rounded down to whole heads; in mode `remove` to whole "
            "groups of heads that share a key-value head."
        ),
        examples=[0.1],
    )
    head_indices: dict[LayerKey, NeuronIndices] | None = Field(
        default=None,
        title="Heads by index",
        description="Exactly these query heads, by layer number; nothing is scored.",
        examples=[{"0": [3], "5": [0, 7]}],
        min_length=1,
    )
    mode: Literal["zero", "remove"] = Field(
        default="zero",
        title="Mode of heads",
        description=(
            "`zero` clears what a head adds and keeps all shapes. `remove` takes out key-value "
            "heads with all query heads that share them, equally many in every layer, where the "
            "family's config can say so."
        ),
        examples=["zero"],
    )
    bias_weight: Annotated[StrictFloat, Field(ge=0, le=1)] | None = Field(
        default=None,
        title="Weight of bias for heads",
        description="As for neurons, whose value null stands for.",
        examples=[1.0],
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        given = [name for name in HEAD_AMOUNTS if getattr(self, name) is not None]
        if len(given) != 1:
            raise PydanticCustomError(
                "one_amount",
                "Give exactly one of {fields}; given: {given}.",
                {"fields": ", ".join(HEAD_AMOUNTS), "given": ", ".join(given) or "none"},
            )
        for layer, heads in (self.head_indices or {}).items():
            if len(set(heads)) != len(heads):
                raise PydanticCustomError(
                    "bad_index",
                    "`head_indices[{layer}]` names a head twice; name each once.",
                    {"layer": layer},
                )
        return self
