"""Aligning the token positions of two prompts."""

from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import assume, given

from workers.methods.fairness_pruning.measuring.alignment import Slot, align

ids = st.lists(st.integers(0, 3), min_size=1, max_size=9)


def test_equal_lengths_pair_position_by_position_even_where_tokens_differ_later() -> None:
    alignment = align([1, 5, 7, 8], [1, 6, 7, 9])

    assert alignment.slots == tuple(Slot(k, k + 1, k, k + 1) for k in range(4))
    assert alignment.first_affected == 1
    assert alignment.position_shift == 0


def test_changed_spans_of_unequal_length_become_one_slot() -> None:
    alignment = align([1, 2, 9, 3, 4], [1, 2, 7, 8, 3, 4])

    assert alignment.slots == (
        Slot(0, 1, 0, 1),
        Slot(1, 2, 1, 2),
        Slot(2, 3, 2, 4),
        Slot(3, 4, 4, 5),
        Slot(4, 5, 5, 6),
    )
    assert alignment.first_affected == 2
    assert alignment.position_shift == 1
    assert not alignment.dropped_span


def test_inserted_words_have_no_slot() -> None:
    alignment = align([1, 2, 3], [1, 2, 9, 9, 3])

    assert alignment.dropped_span
    assert alignment.slots == (Slot(0, 1, 0, 1), Slot(1, 2, 1, 2), Slot(2, 3, 4, 5))


def test_a_prompt_that_begins_the_other_leaves_no_affected_slot() -> None:
    alignment = align([1, 2], [1, 2, 3])

    assert alignment.slots[alignment.first_affected :] == ()


def test_suffix_does_not_take_tokens_of_the_prefix() -> None:
    alignment = align([4, 4, 4], [4, 4])

    assert len(alignment.slots) == 2
    assert [slot.stop_2 for slot in alignment.slots] == [1, 2]


@given(first=ids, second=ids)
def test_slots_are_in_order_and_never_overlap(first: list[int], second: list[int]) -> None:
    assume(first != second)

    slots = align(first, second).slots

    for before, after in pairwise(slots):
        assert before.stop_1 <= after.start_1
        assert before.stop_2 <= after.start_2
    assert all(slot.stop_1 > slot.start_1 and slot.stop_2 > slot.start_2 for slot in slots)


@given(first=ids, second=ids)
def test_swapping_the_prompts_swaps_the_slots(first: list[int], second: list[int]) -> None:
    assume(first != second)

    there, back = align(first, second), align(second, first)

    assert back.position_shift == -there.position_shift
    assert [(s.start_2, s.stop_2, s.start_1, s.stop_1) for s in back.slots] == [
        (s.start_1, s.stop_1, s.start_2, s.stop_2) for s in there.slots
    ]


@pytest.mark.parametrize("length", [2, 5])
def test_prefix_slots_hold_equal_tokens(length: int) -> None:
    first, second = [*range(length), 8], [*range(length), 9, 9]

    alignment = align(first, second)

    assert alignment.first_affected == length
    for slot in alignment.slots[:length]:
        assert first[slot.start_1] == second[slot.start_2]
