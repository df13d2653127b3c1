"""Scope `global`: the neurons of the whole model that react most, under every category rule."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.catalog.fairness_pruning.config import FairnessPruningConfig
from app.domain.architectures import MlpDimensions
from workers.methods.fairness_pruning.measuring.bias_scores import pooled_scores
from workers.methods.fairness_pruning.selecting.controls import random_removal, removal_counts_of
from workers.methods.fairness_pruning.selecting.global_selection import select_globally
from workers.methods.fairness_pruning.selecting.selection import Selection

Scores = npt.NDArray[np.float64]
RULES = ("pooled", "intersection", "union")
PAIRS = [
    {"prompt_1": "The boy ran", "prompt_2": "The girl ran", "category": "gender"},
    {"prompt_1": "The old man", "prompt_2": "The young man", "category": "age"},
]


def config(**fields: Any) -> FairnessPruningConfig:
    return FairnessPruningConfig.model_validate({"pairs": PAIRS, "scope": "global", **fields})


def select(by_category: Mapping[str, Scores], **fields: Any) -> Selection:
    scores = np.stack(list(by_category.values()))
    counts = np.ones(len(scores), dtype=np.int64)
    pooled = pooled_scores(scores, counts, pair_aggregation="mean")
    layers, neurons = pooled.shape
    return select_globally(pooled, by_category, config(**fields), MlpDimensions(layers, 8, neurons))


def rows(selection: Selection) -> set[tuple[int, int]]:
    return {(layer, n) for layer, neurons in selection.removed.items() for n in neurons}


def slow_top(scores: Scores, layers: list[int], count: int) -> list[tuple[int, int]]:
    every = [(layer, neuron) for layer in layers for neuron in range(scores.shape[1])]
    return sorted(every, key=lambda at: (-np.float32(scores[at]), at))[:count]


def slow_selection(
    by_category: Mapping[str, Scores], rule: str, layers: list[int], count: int
) -> set[tuple[int, int]]:
    """Select one neuron after the other, as the method's text says it."""
    pooled = np.stack(list(by_category.values())).mean(axis=0)
    neurons = pooled.shape[1]
    least = {layer: slow_top(pooled, [layer], neurons)[-1] for layer in layers}
    if rule == "pooled":
        chosen: set[tuple[int, int]] = set()
        for at in slow_top(pooled, layers, pooled.size):
            if len(chosen) < count and at != least[at[0]]:
                chosen.add(at)
        return chosen
    sets = [set(slow_top(scores, layers, count)) for scores in by_category.values()]
    chosen = set.intersection(*sets) if rule == "intersection" else set.union(*sets)
    for layer in layers:
        if sum(at[0] == layer for at in chosen) == neurons:
            chosen.remove(least[layer])
    return chosen


@st.composite
def problems(draw: st.DrawFn) -> tuple[dict[str, Scores], list[int], int]:
    """Draw scores of two categories with many ties, candidate layers, and an amount."""
    layers, neurons = draw(st.integers(1, 4)), draw(st.integers(2, 7))
    # Quarters are exact in fp32 and fp64, so the mean of two is too, and ties are real ties.
    value = st.integers(0, 12).map(lambda n: n / 4)
    table = st.lists(value, min_size=layers * neurons, max_size=layers * neurons)
    scores = {
        name: np.array(draw(table), dtype=np.float64).reshape(layers, neurons)
        for name in ("age", "gender")
    }
    chosen = draw(st.sets(st.integers(0, layers - 1), min_size=1).map(sorted))
    return scores, chosen, draw(st.integers(1, len(chosen) * (neurons - 1)))


@pytest.mark.parametrize("rule", RULES)
@given(problem=problems())
def test_selection_equals_a_slow_one_that_goes_neuron_by_neuron(
    rule: str, problem: tuple[dict[str, Scores], list[int], int]
) -> None:
    scores, layers, count = problem

    chosen = select(scores, category_rule=rule, top_k=count, layers=layers)

    assert rows(chosen) == slow_selection(scores, rule, layers, count)


@pytest.mark.parametrize("rule", RULES)
@given(problem=problems())
def test_no_layer_loses_all_of_its_neurons_nor_one_outside_the_candidates(
    rule: str, problem: tuple[dict[str, Scores], list[int], int]
) -> None:
    scores, layers, count = problem
    neurons = scores["age"].shape[1]

    chosen = select(scores, category_rule=rule, top_k=count, layers=layers)

    assert all(len(gone) < neurons for gone in chosen.removed.values())
    assert {layer for layer, gone in chosen.removed.items() if gone} <= set(layers)
    assert all(gone == sorted(set(gone)) for gone in chosen.removed.values())


@given(problem=problems())
def test_pooled_removes_exactly_what_was_asked_for(
    problem: tuple[dict[str, Scores], list[int], int],
) -> None:
    scores, layers, count = problem

    assert len(rows(select(scores, top_k=count, layers=layers))) == count


@pytest.mark.parametrize("rule", RULES)
@given(problem=problems())
def test_order_of_the_categories_does_not_matter(
    rule: str, problem: tuple[dict[str, Scores], list[int], int]
) -> None:
    scores, layers, count = problem
    turned = dict(reversed(scores.items()))
    fields = {"category_rule": rule, "top_k": count, "layers": layers}

    assert rows(select(scores, **fields)) == rows(select(turned, **fields))


@given(problem=problems())
def test_intersection_lies_in_every_top_set_and_union_holds_every_one(
    problem: tuple[dict[str, Scores], list[int], int],
) -> None:
    scores, layers, count = problem
    common = rows(select(scores, category_rule="intersection", top_k=count, layers=layers))
    any_of = rows(select(scores, category_rule="union", top_k=count, layers=layers))

    for values in scores.values():
        top = set(slow_top(values, layers, count))
        assert common <= top
        # One neuron of a layer may be spared.
        assert len(top - any_of) <= len(layers)


def test_fraction_is_an_exact_share_of_the_whole_model() -> None:
    scores = {"gender": np.arange(100.0).reshape(4, 25)}

    chosen = select(scores, fraction=0.29)  # int(0.29 * 100) is 28 in floats

    assert len(rows(chosen)) == 29
    assert chosen.requested_fraction == pytest.approx(0.29)
    assert chosen.effective_fraction == pytest.approx(0.29)


def test_fraction_stays_one_of_the_whole_model_when_few_layers_are_candidates() -> None:
    scores = {"gender": np.arange(100.0).reshape(4, 25)}

    chosen = select(scores, fraction=0.1, layers=[1])

    assert {layer: len(gone) for layer, gone in chosen.removed.items()} == {0: 0, 1: 10, 2: 0, 3: 0}


def test_effective_fraction_of_a_union_may_be_larger_than_asked_for() -> None:
    first, second = np.zeros((2, 10)), np.zeros((2, 10))
    first[0, 3], second[1, 4] = 1, 1

    chosen = select({"age": first, "gender": second}, category_rule="union", top_k=1)

    assert rows(chosen) == {(0, 3), (1, 4)}
    assert (chosen.requested_fraction, chosen.effective_fraction) == (1 / 20, 2 / 20)


def test_nothing_in_common_is_a_warning_and_no_removal() -> None:
    first, second = np.zeros((2, 10)), np.zeros((2, 10))
    first[0, 3], second[1, 4] = 1, 1

    chosen = select({"age": first, "gender": second}, category_rule="intersection", top_k=1)

    assert rows(chosen) == set()
    assert [warning.code for warning in chosen.warnings] == ["nothing_selected"]


def test_a_layer_that_would_be_emptied_keeps_its_least_neuron_with_a_warning() -> None:
    loud = np.array([[9.0, 7.0, 8.0], [1.0, 2.0, 3.0]])

    chosen = select({"gender": loud}, top_k=3)

    assert rows(chosen) == {(0, 0), (0, 2), (1, 2)}
    assert [warning.code for warning in chosen.warnings] == ["layer_spared"]
    assert "Layer 0" in chosen.warnings[0].message


def test_neurons_that_do_not_react_are_taken_in_order_with_a_warning() -> None:
    quiet = np.zeros((2, 5))
    quiet[1, 3] = 1

    chosen = select({"gender": quiet}, top_k=3)

    assert rows(chosen) == {(1, 3), (0, 0), (0, 1)}
    assert [warning.code for warning in chosen.warnings] == ["no_bias_signal"]


def test_more_neurons_than_the_layers_can_lose_are_refused() -> None:
    with pytest.raises(ValueError, match="can lose"):
        select({"gender": np.ones((2, 5))}, top_k=5, layers=[0])


def test_scores_of_the_wrong_width_are_refused() -> None:
    with pytest.raises(ValueError, match="dimensions"):
        select_globally(np.ones((2, 5)), {}, config(top_k=1), MlpDimensions(2, 8, 6))


@pytest.mark.parametrize("rule", RULES)
@given(problem=problems(), seed=st.integers(0, 2**32 - 1))
def test_random_controls_remove_as_many_of_each_layer(
    rule: str, problem: tuple[dict[str, Scores], list[int], int], seed: int
) -> None:
    scores, layers, count = problem
    neurons = scores["age"].shape[1]
    chosen = select(scores, category_rule=rule, top_k=count, layers=layers)

    drawn = random_removal(removal_counts_of(chosen.removed), neurons=neurons, seed=seed, draw=0)

    assert removal_counts_of(drawn) == removal_counts_of(chosen.removed)
