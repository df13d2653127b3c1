"""Tokenise every pair of a config once, align it, and say to which group it belongs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from transformers import PreTrainedTokenizerBase

from app.catalog.fairness_pruning.config import FairnessPruningConfig
from app.catalog.fairness_pruning.pairs import PromptPair
from app.domain.errors import JobErrorCode, JobFailure
from workers.methods.fairness_pruning.measuring.alignment import Alignment, align
from workers.methods.fairness_pruning.measuring.batches import TokenPair

Split = Literal["selection", "holdout", "control"]

SPLITS: tuple[Split, ...] = ("selection", "holdout", "control")
SPLIT_LABELS = {
    "selection": "selection pairs",
    "holdout": "held-out pairs",
    "control": "control pairs",
}
UNLABELLED = "unlabelled"
"""Category of pairs that name none."""


@dataclass(frozen=True, slots=True)
class PlannedPair:
    """A pair of the config with the token ids that feed the model and every label.

    `column` is its place in the arrays of a diagnosis, None when it is left out because its
    prompts differ in length and the config says `skip`.
    """

    number: int
    prompt_1: str
    prompt_2: str
    category: str
    split: Split
    ids_1: tuple[int, ...]
    ids_2: tuple[int, ...]
    alignment: Alignment
    column: int | None


@dataclass(frozen=True, slots=True)
class PairPlan:
    """All pairs in report order: `pairs`, then `holdout_pairs`, then `control_pairs`."""

    pairs: tuple[PlannedPair, ...]
    categories: tuple[str, ...]

    @property
    def measured(self) -> tuple[PlannedPair, ...]:
        """Pairs with a column, in column order."""
        return tuple(pair for pair in self.pairs if pair.column is not None)

    def columns(self, split: Split, category: str | None = None) -> list[int]:
        """Columns of the pairs of one split, and of one category where given."""
        return [
            pair.column
            for pair in self.pairs
            if pair.column is not None and pair.split == split and category in (None, pair.category)
        ]

    def token_pairs(self) -> list[TokenPair]:
        """Pairs to measure; only selection pairs carry a category and so score neurons."""
        position = {category: number for number, category in enumerate(self.categories)}
        return [
            TokenPair(
                number=column,
                category=position[pair.category] if pair.split == "selection" else -1,
                ids_1=pair.ids_1,
                ids_2=pair.ids_2,
                alignment=pair.alignment,
            )
            for column, pair in enumerate(self.measured)
        ]


def plan_pairs(
    config: FairnessPruningConfig,
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_positions: int | None = None,
) -> PairPlan:
    """Tokenise and align the pairs of a resolved config.

    Raises
    ------
    JobFailure
        A pair is identical, too long, or of unequal length where the config does not allow it.
        The check before the job finds the same; this guards against another tokenizer version.
    """
    limit = min(config.max_prompt_tokens, max_positions or config.max_prompt_tokens)
    pairs: list[PlannedPair] = []
    column = 0
    for number, (pair, split) in enumerate(_in_report_order(config)):
        ids_1, ids_2 = _encode(tokenizer, pair.prompt_1), _encode(tokenizer, pair.prompt_2)
        _require_usable(ids_1, ids_2, number, limit)
        is_unequal = len(ids_1) != len(ids_2)
        if is_unequal and config.on_length_mismatch == "error":
            raise _pair_failure("pair_length_mismatch", number, f"{len(ids_1)} and {len(ids_2)}")
        is_skipped = is_unequal and config.on_length_mismatch == "skip"
        pairs.append(
            PlannedPair(
                number=number,
                prompt_1=pair.prompt_1,
                prompt_2=pair.prompt_2,
                category=pair.category or UNLABELLED,
                split=split,
                ids_1=ids_1,
                ids_2=ids_2,
                alignment=align(ids_1, ids_2),
                column=None if is_skipped else column,
            )
        )
        column += not is_skipped
    return PairPlan(pairs=tuple(pairs), categories=_categories(pairs))


def _in_report_order(config: FairnessPruningConfig) -> Iterator[tuple[PromptPair, Split]]:
    for pair in config.pairs:
        yield pair, "holdout" if pair.split == "holdout" else "selection"
    for pair in config.holdout_pairs:
        yield pair, "holdout"
    for pair in config.control_pairs:
        yield pair, "control"


def _encode(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[int, ...]:
    return tuple(int(token) for token in tokenizer(text)["input_ids"])


def _categories(pairs: list[PlannedPair]) -> tuple[str, ...]:
    """Categories that score neurons, in alphabetical order: the order of pairs must not matter."""
    names = {p.category for p in pairs if p.split == "selection" and p.column is not None}
    return tuple(sorted(names))


def _require_usable(
    ids_1: tuple[int, ...], ids_2: tuple[int, ...], number: int, limit: int
) -> None:
    if ids_1 == ids_2:
        raise _pair_failure("pair_identical", number, f"{len(ids_1)} and {len(ids_2)}")
    if max(len(ids_1), len(ids_2)) > limit:
        raise _pair_failure("pair_too_long", number, f"{len(ids_1)} and {len(ids_2)}")


def _pair_failure(reason: str, number: int, lengths: str) -> JobFailure:
    return JobFailure(
        JobErrorCode.CONFIG_INVALID,
        f"{reason}: pair {number} has {lengths} tokens.",
        "Change or remove this pair.",
        fields={"reason": reason, "pair": number},
    )
