"""Which heads are taken out, and which the controls take instead."""

from typing import Any

import numpy as np
import pytest

from app.catalog.fairness_pruning.head_section import AttentionHeadsConfig
from app.domain.attention import AttentionShape
from workers.methods.fairness_pruning.heads.selection import (
    least_important_heads,
    random_heads,
    select_heads,
)

SHAPE = AttentionShape(layers=2, hidden=24, heads=6, key_value_heads=2, head_dim=4)
BIAS = {0: np.array([0.0, 9, 1, 2, 3, 4]), 1: np.array([5.0, 0, 0, 1, 5, 2])}
IMPORTANCE = {0: np.array([1.0, 9, 2, 3, 4, 5]), 1: np.array([2.0, 2, 2, 1, 1, 1])}


def section(**fields: Any) -> AttentionHeadsConfig:
    return AttentionHeadsConfig.model_validate(fields)


def chosen(weight: float = 0.5, **fields: Any) -> dict[int, list[int]]:
    return select_heads(BIAS, IMPORTANCE, section(**fields), SHAPE, bias_weight=weight).removed


def test_full_weight_ranks_by_bias_and_ties_go_to_the_lower_head() -> None:
    assert chosen(1.0, heads_per_layer=1) == {0: [1], 1: [0]}


def test_no_weight_ranks_by_lack_of_importance() -> None:
    assert chosen(0.0, heads_per_layer=2) == {0: [0, 2], 1: [3, 4]}


def test_own_weight_of_heads_wins_over_that_of_neurons() -> None:
    assert chosen(1.0, heads_per_layer=2, bias_weight=0.0) == {0: [0, 2], 1: [3, 4]}


def test_scores_are_those_of_the_method() -> None:
    selection = select_heads(BIAS, IMPORTANCE, section(heads_per_layer=1), SHAPE, bias_weight=0.5)

    bias, importance = BIAS[0] / 9, (IMPORTANCE[0] - 1) / 8
    # float32, and 1e-8 in the denominators of the scaling.
    np.testing.assert_allclose(selection.scores[0], 0.5 * bias + 0.5 * (1 - importance), rtol=1e-6)


def test_groups_go_whole_by_the_mean_of_their_heads() -> None:
    # In layer 1 both groups have a head of the highest score, 5: the means tell them apart.
    assert chosen(1.0, heads_per_layer=3, mode="remove") == {0: [0, 1, 2], 1: [3, 4, 5]}


def test_named_heads_are_taken_as_they_are() -> None:
    config = section(head_indices={"1": [4, 2]})

    selection = select_heads({}, {}, config, SHAPE, bias_weight=0.5)

    assert selection.removed == {0: [], 1: [2, 4]}
    assert selection.scores == {}


def test_layer_without_reaction_is_ranked_by_importance_and_warned_of() -> None:
    silent = {**BIAS, 1: np.zeros(6)}

    selection = select_heads(silent, IMPORTANCE, section(heads_per_layer=1), SHAPE, bias_weight=1.0)

    assert selection.removed[1] == [3]
    assert [warning.code for warning in selection.warnings] == ["no_bias_signal"]
    assert "layer 1" in selection.warnings[0].message


@pytest.mark.parametrize("mode", ["zero", "remove"])
def test_random_draws_take_as_many_and_repeat_with_the_seed(mode: str) -> None:
    config = section(heads_per_layer=3, mode=mode)
    removed = {0: [0, 1, 2], 1: [3, 4, 5]}

    draws = [random_heads(removed, config, SHAPE, seed=7, draw=n) for n in range(8)]

    assert draws == [random_heads(removed, config, SHAPE, seed=7, draw=n) for n in range(8)]
    assert all(len(set(heads)) == 3 for draw in draws for heads in draw.values())
    assert len({str(draw) for draw in draws}) > 1
    if mode == "remove":
        groups = [{SHAPE.group_of(h) for h in heads} for draw in draws for heads in draw.values()]
        assert all(len(group) == 1 for group in groups)


def test_importance_control_takes_the_least_important() -> None:
    removed = {0: [1, 2], 1: [5, 4]}

    assert least_important_heads(removed, IMPORTANCE, section(heads_per_layer=2), SHAPE) == {
        0: [0, 2],
        1: [3, 4],
    }
    grouped = section(heads_per_layer=3, mode="remove")
    assert least_important_heads({0: [0, 1, 2]}, IMPORTANCE, grouped, SHAPE) == {0: [0, 1, 2]}
