"""Turn aligned pairs into right-padded batches and the index arrays that reduce them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from workers.methods.fairness_pruning.measuring.alignment import Alignment, Slot

DIAGNOSTIC_BATCH_TOKENS = 512
"""Tokens of one forward, pads included. Measured on two CPU cores with 135 M parameters: larger
batches are no faster, and a batch of this size keeps the distance between two polls short."""


@dataclass(frozen=True, slots=True)
class TokenPair:
    """Token ids of the two prompts of one pair, special tokens included, and their alignment."""

    number: int
    category: int
    ids_1: tuple[int, ...]
    ids_2: tuple[int, ...]
    alignment: Alignment


@dataclass(frozen=True, slots=True)
class SideRows:
    """Where one prompt of each pair lies in the flattened activations of a batch.

    `rows` gives one row for each slot. Slots that stand for several tokens are listed in
    `mean_slots` and replaced by the mean of the rows `mean_rows`; `mean_groups` says to which
    entry of `mean_slots` each of them belongs, and `mean_weights` is one over the span length.
    """

    rows: Tensor  # (slots,)
    mean_slots: Tensor  # (spans,)
    mean_rows: Tensor  # (span tokens,)
    mean_groups: Tensor  # (span tokens,)
    mean_weights: Tensor  # (span tokens, 1)

    def take(self, flat: Tensor) -> Tensor:
        """Select the activations of the slots: (rows, width) to (slots, width)."""
        taken = flat.index_select(0, self.rows)
        if self.mean_slots.numel():
            spans = flat.new_zeros(self.mean_slots.numel(), flat.shape[1])
            weighted = flat.index_select(0, self.mean_rows) * self.mean_weights
            spans.index_add_(0, self.mean_groups, weighted)
            taken.index_copy_(0, self.mean_slots, spans)
        return taken


@dataclass(frozen=True, slots=True)
class PairBatch:
    """One forward: distinct prompts of some pairs, and how to reduce it to those pairs.

    `slot_means` and `affected_means` average slot values to pair values. `token_means` averages
    the prompts' own tokens, prompt 1 positive and prompt 2 negative, without any alignment;
    `affected_token_means` leaves out the common prefix. `starts` are each pair's first rows.
    """

    numbers: Tensor  # (pairs,)
    categories: Tensor  # (pairs,)
    pairs: tuple[TokenPair, ...]
    input_ids: Tensor  # (prompts, length)
    attention_mask: Tensor  # (prompts, length)
    side_1: SideRows
    side_2: SideRows
    slot_means: Tensor  # (pairs, slots) fp64
    affected_means: Tensor  # (pairs, slots) fp64
    token_means: Tensor  # (pairs, rows)
    affected_token_means: Tensor  # (pairs, rows)
    starts: tuple[tuple[int, int], ...]

    def prompt_rows(self) -> tuple[Tensor, Tensor]:
        """Row of `input_ids` of prompt 1 and of prompt 2 of each pair, (pairs,) each."""
        length = self.input_ids.shape[1]
        rows = torch.tensor(self.starts, device=self.input_ids.device) // length
        return rows[:, 0], rows[:, 1]

    def rows_of(self, position: int) -> tuple[slice, slice]:
        """Rows of the prompts of the pair at `position` in the flattened activations."""
        pair = self.pairs[position]
        start_1, start_2 = self.starts[position]
        return (
            slice(start_1, start_1 + len(pair.ids_1)),
            slice(start_2, start_2 + len(pair.ids_2)),
        )


def make_batches(
    pairs: Sequence[TokenPair], *, max_tokens: int = DIAGNOSTIC_BATCH_TOKENS, device: str = "cpu"
) -> list[PairBatch]:
    """Group pairs of similar length into batches of at most `max_tokens` tokens.

    The order depends on the token ids alone, so that neither the order of the pairs nor that of
    the prompts in a pair can change a rounding, and pairs that share a prompt meet in one batch.
    A single pair may exceed the limit.
    """
    return [_make_batch(group, device) for group in _groups(pairs, max_tokens)]


def _groups(pairs: Sequence[TokenPair], max_tokens: int) -> Iterator[list[TokenPair]]:
    group: list[TokenPair] = []
    prompts: set[tuple[int, ...]] = set()
    for pair in sorted(pairs, key=_canonical_key):
        widened = prompts | set(_prompts_of(pair))
        length = max(len(ids) for ids in widened)
        if group and len(widened) * length > max_tokens:
            yield group
            group, widened = [], set(_prompts_of(pair))
        group.append(pair)
        prompts = widened
    if group:
        yield group


def _canonical_key(pair: TokenPair) -> tuple[int, list[tuple[int, ...]], int]:
    ids = sorted(_prompts_of(pair))
    return max(len(prompt) for prompt in ids), ids, pair.category


def _prompts_of(pair: TokenPair) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return pair.ids_1, pair.ids_2


def _distinct_prompts(pairs: Sequence[TokenPair]) -> dict[tuple[int, ...], int]:
    distinct = sorted({ids for pair in pairs for ids in _prompts_of(pair)})
    return {ids: row for row, ids in enumerate(distinct)}


def _make_batch(pairs: list[TokenPair], device: str) -> PairBatch:
    prompts = _distinct_prompts(pairs)
    length = max(len(ids) for ids in prompts)
    input_ids = torch.zeros(len(prompts), length, dtype=torch.long)
    mask = torch.zeros_like(input_ids)
    for ids, row in prompts.items():
        input_ids[row, : len(ids)] = torch.tensor(ids)
        mask[row, : len(ids)] = 1
    starts_1 = [prompts[pair.ids_1] * length for pair in pairs]
    starts_2 = [prompts[pair.ids_2] * length for pair in pairs]
    n_rows = input_ids.numel()
    return PairBatch(
        numbers=torch.tensor([pair.number for pair in pairs], device=device),
        categories=torch.tensor([pair.category for pair in pairs], device=device),
        pairs=tuple(pairs),
        input_ids=input_ids.to(device),
        attention_mask=mask.to(device),
        side_1=_side_rows(pairs, starts_1, side=1, device=device),
        side_2=_side_rows(pairs, starts_2, side=2, device=device),
        slot_means=_slot_means(pairs, affected=False).to(device),
        affected_means=_slot_means(pairs, affected=True).to(device),
        token_means=_token_means(pairs, starts_1, starts_2, n_rows, affected=False).to(device),
        affected_token_means=_token_means(pairs, starts_1, starts_2, n_rows, affected=True).to(
            device
        ),
        starts=tuple(zip(starts_1, starts_2, strict=True)),
    )


def _side_rows(
    pairs: Sequence[TokenPair], starts: Sequence[int], *, side: int, device: str
) -> SideRows:
    rows: list[int] = []
    mean_slots: list[int] = []
    mean_rows: list[int] = []
    mean_groups: list[int] = []
    mean_weights: list[float] = []
    for pair, start in zip(pairs, starts, strict=True):
        for slot in pair.alignment.slots:
            begin, end = _span(slot, side)
            if end - begin > 1:
                mean_groups += [len(mean_slots)] * (end - begin)
                mean_rows += range(start + begin, start + end)
                mean_weights += [1.0 / (end - begin)] * (end - begin)
                mean_slots.append(len(rows))
            rows.append(start + begin)
    return SideRows(
        rows=torch.tensor(rows, device=device),
        mean_slots=torch.tensor(mean_slots, dtype=torch.long, device=device),
        mean_rows=torch.tensor(mean_rows, dtype=torch.long, device=device),
        mean_groups=torch.tensor(mean_groups, dtype=torch.long, device=device),
        mean_weights=torch.tensor(mean_weights, device=device).reshape(-1, 1),
    )


def _span(slot: Slot, side: int) -> tuple[int, int]:
    return (slot.start_1, slot.stop_1) if side == 1 else (slot.start_2, slot.stop_2)


def _slot_means(pairs: Sequence[TokenPair], *, affected: bool) -> Tensor:
    n_slots = sum(len(pair.alignment.slots) for pair in pairs)
    weights = torch.zeros(len(pairs), n_slots, dtype=torch.float64)
    begin = 0
    for row, pair in enumerate(pairs):
        end = begin + len(pair.alignment.slots)
        first = begin + (pair.alignment.first_affected if affected else 0)
        # A dropped span at the end of a prompt leaves no affected slot: its means are 0.
        weights[row, first:end] = 1.0 / max(end - first, 1)
        begin = end
    return weights


def _token_means(
    pairs: Sequence[TokenPair],
    starts_1: Sequence[int],
    starts_2: Sequence[int],
    n_rows: int,
    *,
    affected: bool,
) -> Tensor:
    weights = torch.zeros(len(pairs), n_rows)
    for row, (pair, start_1, start_2) in enumerate(zip(pairs, starts_1, starts_2, strict=True)):
        first = pair.alignment.first_affected if affected else 0
        for ids, start, sign in ((pair.ids_1, start_1, 1.0), (pair.ids_2, start_2, -1.0)):
            weights[row, start + first : start + len(ids)] = sign / max(len(ids) - first, 1)
    return weights
