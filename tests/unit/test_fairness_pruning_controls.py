"""Random removals, and what the controls allow a report to say."""

import numpy as np
import pytest

from workers.methods.fairness_pruning.selecting.controls import (
    BEYOND_CHANCE,
    LIKE_IMPORTANCE,
    LIKE_RANDOM,
    NO_MORE_THAN_IMPORTANCE,
    SELECTION_ONLY,
    judge,
    random_removal,
    worded,
)

COUNTS = {0: 3, 1: 0, 2: 5}
NOISE = np.array([-0.02, -0.01, 0.0, 0.01, 0.02, 0.0])


def around(value: float) -> np.ndarray:
    return value + NOISE


def test_random_removal_takes_exactly_as_many_neurons_of_each_layer() -> None:
    removed = random_removal(COUNTS, neurons=40, seed=7, draw=0)

    assert {layer: len(set(indices)) for layer, indices in removed.items()} == COUNTS
    assert all(indices == sorted(indices) for indices in removed.values())
    assert all(0 <= index < 40 for indices in removed.values() for index in indices)


def test_random_removal_is_reproducible_from_seed_and_draw() -> None:
    again = random_removal(COUNTS, neurons=40, seed=7, draw=2)

    assert random_removal(COUNTS, neurons=40, seed=7, draw=2) == again
    assert random_removal(COUNTS, neurons=40, seed=7, draw=3) != again
    assert random_removal(COUNTS, neurons=40, seed=8, draw=2) != again


def test_a_selection_above_every_control_is_beyond_chance() -> None:
    verdict = judge(around(1.0), [around(0.1), around(0.3)], around(0.2), seed=0)

    assert verdict.wording == BEYOND_CHANCE
    assert verdict.claim
    assert verdict.interval is not None
    assert verdict.interval[0] > 0
    assert verdict.interval_against_importance is not None
    assert verdict.interval_against_importance[0] > 0


def test_a_hair_over_removal_by_importance_is_no_claim() -> None:
    # The lead of 0.001 a pair stands in noise that is twenty times as large and not shared.
    least = around(0.999)[::-1] - np.array([0.0, 0.01, -0.01, 0.02, -0.02, 0.0])

    verdict = judge(around(1.0), [around(0.1), around(0.3)], least, seed=0)

    assert verdict.selection is not None
    assert verdict.importance_only is not None
    assert verdict.selection > verdict.importance_only
    assert verdict.wording == LIKE_IMPORTANCE
    assert not verdict.claim


def test_rank_counts_every_removal_and_a_tie_against_the_selection() -> None:
    first = judge(around(1.0), [around(0.1), around(0.3)], around(0.2), seed=0)
    tied = judge(around(1.0), [around(1.0), around(2.0)], around(0.2), seed=0)

    assert first.rank == "the largest of 4 removals (this selection, 2 random, 1 by importance)"
    assert tied.rank.startswith("number 3 of 4 removals")


def test_one_better_random_draw_is_enough_to_refuse_the_claim() -> None:
    verdict = judge(around(1.0), [around(0.1), around(1.1)], around(0.2), seed=0)

    assert verdict.wording == LIKE_RANDOM
    assert not verdict.claim


@pytest.mark.parametrize("random", [0.1, 1.2])
@pytest.mark.parametrize("least_important", [1.0, 1.5])
def test_importance_alone_doing_as_well_is_said_first(
    least_important: float, random: float
) -> None:
    verdict = judge(around(1.0), [around(random)], around(least_important), seed=0)

    assert verdict.wording == NO_MORE_THAN_IMPORTANCE
    assert not verdict.claim


def test_a_lead_whose_interval_holds_zero_is_no_claim() -> None:
    lead_of_one_pair = np.array([6.0, -1.0, -1.0, -1.0, -1.0, -1.0])

    verdict = judge(lead_of_one_pair, [np.full(6, 0.1)], np.full(6, 0.05), seed=0)

    assert verdict.selection is not None
    assert verdict.selection > max(verdict.random)
    assert verdict.wording == LIKE_RANDOM


def test_a_worse_selection_is_never_a_claim_however_clear() -> None:
    verdict = judge(around(-1.0), [around(0.0)], around(-2.0), seed=0)

    assert verdict.wording == LIKE_RANDOM


def test_growing_less_than_every_control_is_no_reduction() -> None:
    verdict = judge(around(-1.0), [around(-3.0), around(-4.0)], around(-2.0), seed=0)

    assert verdict.wording == LIKE_RANDOM
    assert not verdict.claim


def test_fewer_than_five_held_out_pairs_allow_no_claim() -> None:
    verdict = judge(np.ones(4), [np.zeros(4)], np.zeros(4), seed=0)

    assert verdict.wording == SELECTION_ONLY
    assert not verdict.claim


def test_wordings_name_what_was_taken_out() -> None:
    wording = worded(NO_MORE_THAN_IMPORTANCE, "attention heads")

    assert wording == "no more than removing the least important attention heads"
