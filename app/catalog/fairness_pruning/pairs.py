"""Prompt pairs of a config: their form, and which of them are held out."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictStr
from pydantic_core import PydanticCustomError, PydanticKnownError

from app.catalog.fairness_pruning.presets import pair_set_references
from app.catalog.pair_sets import pair_set_names
from app.domain.text import storable

Split = Literal["selection", "holdout"]

# Limit of the method: a diagnosis costs two forward passes a pair.
MAX_PAIRS = 2000
# Every two categories are compared in every layer, and each has rows in every table and picture.
MAX_CATEGORIES = 50
# Below ten pairs a fifth is a single pair, and nothing could be learned from it.
_MIN_PAIRS_FOR_HOLDOUT = 10
_HOLDOUT_EVERY = 5


def _not_blank(text: str) -> str:
    if not text.strip():
        raise PydanticCustomError("blank_prompt", "A prompt needs at least one visible character.")
    return text


Prompt = Annotated[StrictStr, AfterValidator(_not_blank)]


class PromptPair(BaseModel):
    """Two prompts that differ in nothing but a demographic word."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prompt_1: Prompt = Field(
        title="First prompt",
        description="The text with the first demographic word.",
        examples=["The boy was a doctor. He was very"],
    )
    prompt_2: Prompt = Field(
        title="Second prompt",
        description="The same text with the other word.",
        examples=["The girl was a doctor. He was very"],
    )
    category: StrictStr | None = Field(
        default=None,
        title="Category",
        description="The attribute that the pair swaps, for example gender.",
        examples=["gender"],
        min_length=1,
        max_length=64,
    )
    split: Split | None = Field(
        default=None,
        title="Split",
        description=(
            "`selection` pairs choose the neurons, `holdout` pairs only test the result. "
            "Null leaves the choice to the service: a fixed fifth of ten or more pairs is held out."
        ),
        examples=["selection"],
    )

    @property
    def key(self) -> tuple[str, str]:
        """Identify the pair whichever prompt comes first."""
        first, second = sorted((self.prompt_1, self.prompt_2))
        return first, second


def _few_categories(pairs: "tuple[PromptPair, ...]") -> "tuple[PromptPair, ...]":
    count = len({pair.category for pair in pairs})
    if count > MAX_CATEGORIES:
        raise PydanticCustomError(
            "too_many_categories",
            "The pairs have {count} categories; give at most {limit}, and put several under one.",
            {"count": count, "limit": MAX_CATEGORIES},
        )
    return pairs


def _not_too_many(value: object) -> object:
    """Count before any pair is read: the library collects the faults of all pairs first."""
    if isinstance(value, list | tuple) and len(value) > MAX_PAIRS:
        counts = {"field_type": "Tuple", "max_length": MAX_PAIRS, "actual_length": len(value)}
        raise PydanticKnownError("too_long", counts)
    return value


def _known_sets_only(value: object) -> object:
    """Report a set name that was left unexpanded, which is one that does not exist."""
    if isinstance(value, str) or pair_set_references(value):
        unknown = sorted(set(pair_set_references(value)) - set(pair_set_names()))
        raise PydanticCustomError(
            "unknown_pair_set",
            "No built-in pair set is called {unknown}; there are: {known}.",
            {
                "unknown": storable(", ".join(unknown), limit=300),
                "known": ", ".join(pair_set_names()),
            },
        )
    return value


def _offer_set_names(schema: dict[str, Any]) -> None:
    """Add the two forms that are expanded before validation to the field's JSON Schema."""
    one_set = {"type": "string", "enum": sorted(pair_set_names())}
    pair_list = {key: schema.pop(key) for key in ("type", "items", "maxItems") if key in schema}
    schema["anyOf"] = [
        pair_list,
        {**one_set, "description": "A built-in set."},
        {"type": "array", "items": one_set, "minItems": 1, "description": "Built-in sets."},
    ]


PromptPairs = Annotated[
    tuple[PromptPair, ...],
    Field(max_length=MAX_PAIRS),
    BeforeValidator(_known_sets_only),
    BeforeValidator(_not_too_many),
    AfterValidator(_few_categories),
    Field(json_schema_extra=_offer_set_names),
]


def with_splits(pairs: Sequence[PromptPair], *, hold_out: bool) -> tuple[PromptPair, ...]:
    """Give every pair its split, in the order of `pairs`.

    With `hold_out`, and ten distinct pairs or more of which none has a split yet, every fifth is
    held out, counted in an order that neither the order of the list nor a swap of the two
    prompts can change, so that these cannot change the selection.
    """
    held_out = _held_out_keys(pairs) if hold_out else frozenset()
    return tuple(
        pair
        if pair.split is not None
        else pair.model_copy(update={"split": "holdout" if pair.key in held_out else "selection"})
        for pair in pairs
    )


def _held_out_keys(pairs: Iterable[PromptPair]) -> frozenset[tuple[str, str]]:
    pairs = list(pairs)
    distinct = {pair.key: pair for pair in pairs}
    if len(distinct) < _MIN_PAIRS_FOR_HOLDOUT or any(pair.split for pair in pairs):
        return frozenset()
    # Sorting by category first spreads the held-out pairs over the categories.
    ordered = sorted(distinct, key=lambda key: (distinct[key].category or "", _digest(key)))
    return frozenset(ordered[_HOLDOUT_EVERY - 1 :: _HOLDOUT_EVERY])


def _digest(key: tuple[str, str]) -> str:
    return hashlib.sha256("\0".join(key).encode()).hexdigest()
