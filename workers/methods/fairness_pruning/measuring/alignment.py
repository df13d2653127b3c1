"""Pair the token positions of two prompts of possibly different length."""

from collections.abc import Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

WORD_BOUNDARY_MARKS = "\u2581\u0120"
"""Leading marks of a new word in SentencePiece and in byte-level BPE vocabularies."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One aligned place of a pair: a half-open span of positions in each prompt.

    Spans longer than one token stand for the mean over their tokens.
    """

    start_1: int
    stop_1: int
    start_2: int
    stop_2: int


@dataclass(frozen=True, slots=True)
class Alignment:
    """How the tokens of two prompts correspond.

    `slots[first_affected:]` are the slots at or after the first difference. In a causal model the
    earlier ones are equal in exact arithmetic and only dilute a mean. `position_shift` is the
    length of prompt 2 minus that of prompt 1: suffix tokens then sit at other absolute positions.
    """

    slots: tuple[Slot, ...]
    first_affected: int
    position_shift: int
    dropped_span: bool


def common_prefix(ids_1: Sequence[int], ids_2: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    length = 0
    for first, second in zip(ids_1, ids_2, strict=False):
        if first != second:
            break
        length += 1
    return length


def align(ids_1: Sequence[int], ids_2: Sequence[int]) -> Alignment:
    """Align two different prompts.

    Equal lengths pair position by position. Otherwise the common prefix pairs from the start, the
    common suffix from the end, and the changed spans between them form one slot; it is dropped
    where one of the spans is empty.

    Parameters
    ----------
    ids_1, ids_2
        Token ids of the prompts, special tokens included, exactly as they are fed to the model.
    """
    prefix = common_prefix(ids_1, ids_2)
    if len(ids_1) == len(ids_2):
        slots = tuple(Slot(k, k + 1, k, k + 1) for k in range(len(ids_1)))
        return Alignment(slots, prefix, 0, dropped_span=False)
    suffix = common_prefix(ids_1[prefix:][::-1], ids_2[prefix:][::-1])
    end_1, end_2 = len(ids_1) - suffix, len(ids_2) - suffix
    is_dropped = end_1 == prefix or end_2 == prefix
    head = [Slot(k, k + 1, k, k + 1) for k in range(prefix)]
    middle = [] if is_dropped else [Slot(prefix, end_1, prefix, end_2)]
    tail = [Slot(end_1 + k, end_1 + k + 1, end_2 + k, end_2 + k + 1) for k in range(suffix)]
    return Alignment(
        slots=(*head, *middle, *tail),
        first_affected=prefix,
        position_shift=len(ids_2) - len(ids_1),
        dropped_span=is_dropped,
    )


def token_labels(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    """Readable labels of exactly these ids, one each, without word-boundary marks.

    Labels always come from the ids of the forward pass: tokenising the text again leaves out the
    special tokens and shifts every label.
    """
    return [_label(tokenizer, piece) for piece in tokenizer.convert_ids_to_tokens(list(ids))]


def _label(tokenizer: PreTrainedTokenizerBase, piece: str) -> str:
    if piece in tokenizer.all_special_tokens:
        return piece
    text = str(tokenizer.convert_tokens_to_string([piece]))
    bare = text.strip() or piece.lstrip(WORD_BOUNDARY_MARKS)
    return bare or piece
