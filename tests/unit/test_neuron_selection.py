"""Scores of neurons and the choice among them, against golden values of an independent run."""

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from app.catalog.fairness_pruning.config import FairnessPruningConfig
from app.domain.architectures import MlpDimensions, find_layout
from workers.methods.fairness_pruning.measuring.bias_scores import pooled_scores
from workers.methods.fairness_pruning.selecting.importance import importance_scores
from workers.methods.fairness_pruning.selecting.selection import (
    combined_scores,
    highest,
    select_neurons,
)
from workers.runtime.context import Stopped

LAYOUT = find_layout("llama")
assert LAYOUT is not None
DIMENSIONS = MlpDimensions(layers=2, hidden=6, neurons=10)
PAIR = {"prompt_1": "The boy ran", "prompt_2": "The girl ran"}


def config(**fields: Any) -> FairnessPruningConfig:
    return FairnessPruningConfig.model_validate({"pairs": [PAIR], "fraction": 0.3, **fields})


@pytest.fixture(scope="module")
def golden(shared_data: Path) -> dict[str, Any]:
    text = (shared_data / "golden" / "optipfair_stories260k.json").read_text()
    content: dict[str, Any] = json.loads(text)
    return content


@pytest.fixture(scope="module")
def stories(shared_data: Path) -> Path:
    return shared_data / "models" / "stories260k-llama"


@pytest.fixture
def random_model(tmp_path: Path) -> Path:
    generator = np.random.default_rng(0)
    shapes = {"gate_proj": (10, 6), "up_proj": (10, 6), "down_proj": (6, 10)}
    tensors = {
        f"model.layers.{layer}.mlp.{name}.weight": generator.normal(size=shape).astype("float32")
        for layer in range(2)
        for name, shape in shapes.items()
    }
    save_file(tensors, tmp_path / "model.safetensors")
    sizes = {"num_hidden_layers": 2, "hidden_size": 6, "intermediate_size": 10}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **sizes}))
    return tmp_path


def rewrite(folder: Path, layer: int, name: str, row: int, factor: float) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors[f"model.layers.{layer}.mlp.{name}.weight"][row] *= np.float32(factor)
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("kind", "name"), [("ppm", "PPM"), ("vow", "VOW"), ("pon", "PON"), ("l2", "L2")]
)
def test_importance_equals_golden_values(
    golden: dict[str, Any], stories: Path, kind: str, name: str
) -> None:
    scores = importance_scores(stories, LAYOUT, kind)

    # Golden values are float32 sums of 64 terms: 1e-6 is a few units in the last place.
    expected = golden["importance_layer0_first8"][name]
    np.testing.assert_allclose(scores[0][:8], expected, rtol=1e-6)


def test_max_abs_is_the_sum_of_the_largest_magnitudes(random_model: Path) -> None:
    tensors = load_file(random_model / "model.safetensors")
    gate, up = (tensors[f"model.layers.1.mlp.{name}.weight"] for name in ("gate_proj", "up_proj"))

    scores = importance_scores(random_model, LAYOUT, "max_abs")

    expected = [max(map(abs, g)) + max(map(abs, u)) for g, u in zip(gate, up, strict=True)]
    np.testing.assert_allclose(scores[1], expected, rtol=1e-6)


def test_hybrid_weighs_all_three_matrices_by_activation(random_model: Path) -> None:
    tensors = load_file(random_model / "model.safetensors")
    norms = {layer: np.arange(10, dtype=np.float32) for layer in range(2)}

    scores = importance_scores(random_model, LAYOUT, "hybrid", activation_norms=norms)

    total = np.zeros(10)
    for name in ("gate_proj", "up_proj", "down_proj"):
        matrix = tensors[f"model.layers.0.mlp.{name}.weight"].astype("float64")
        rows = matrix.T if name == "down_proj" else matrix
        spread = rows.max(axis=1) + abs(rows.min(axis=1))
        total += spread / (spread.max() + 1e-8)
    np.testing.assert_allclose(scores[0], total * norms[0], rtol=1e-6)


def test_hybrid_needs_activation_norms(random_model: Path) -> None:
    with pytest.raises(ValueError, match="activation norms"):
        importance_scores(random_model, LAYOUT, "hybrid")


def test_importance_stops_when_asked(random_model: Path) -> None:
    with pytest.raises(Stopped):
        importance_scores(random_model, LAYOUT, "ppm", should_stop=lambda: True)


@pytest.mark.parametrize("kind", ["max_abs", "ppm", "vow", "pon", "l2"])
def test_neuron_with_larger_weights_is_more_important_and_stays(
    random_model: Path, kind: str
) -> None:
    before = importance_scores(random_model, LAYOUT, kind)
    weakest = highest(-before[0], 1)[0]
    for name in ("gate_proj", "up_proj"):
        rewrite(random_model, 0, name, weakest, 10)

    after = importance_scores(random_model, LAYOUT, kind)
    no_bias = {layer: np.ones(10, np.float32) for layer in range(2)}
    chosen = select_neurons(no_bias, after, config(bias_weight=0.0), DIMENSIONS)

    assert after[0][weakest] > before[0][weakest]
    assert weakest not in chosen.removed[0]


def test_combined_scores_equal_golden_values(golden: dict[str, Any], stories: Path) -> None:
    importance = importance_scores(stories, LAYOUT, "ppm")
    run = golden["article_hybrid"][0]
    for layer in range(5):
        seen = run["bias"][str(layer)]
        bias = np.full(172, seen["mean"], np.float32)
        bias[:8] = seen["first8"]
        # Only the extremes matter to the scaling; the smallest may sit at any unlisted place.
        bias[9 if seen["argmax"] != 9 else 10] = seen["min"]
        bias[seen["argmax"]] = seen["max"]

        scores = combined_scores(bias, importance[layer], bias_weight=run["bias_weight"])

        np.testing.assert_allclose(scores[:8], run["score"][str(layer)]["first8"], atol=1e-6)


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [("mean", [(3 * 6.0 + 4 * 1.5) / 8, (4 * 2.5 + 4.0) / 8]), ("max", [6.0, 4.0])],
)
def test_pooled_scores_give_every_pair_the_same_weight(
    aggregation: Literal["mean", "max"], expected: list[float]
) -> None:
    per_category = np.array([[[6.0, 0.0]], [[1.5, 2.5]], [[0.0, 4.0]]])

    pooled = pooled_scores(per_category, np.array([3, 4, 1]), pair_aggregation=aggregation)

    np.testing.assert_allclose(pooled, [expected])


def test_weight_of_one_ranks_by_bias_alone() -> None:
    bias = np.array([3, 1, 4, 1.5, 9, 2], np.float32)

    scores = combined_scores(bias, np.arange(6, dtype=np.float32), bias_weight=1.0)

    assert highest(scores, 2) == highest(bias, 2) == [2, 4]


def test_equal_values_scale_to_zero() -> None:
    same = np.full(4, 2, np.float32)

    np.testing.assert_array_equal(combined_scores(same, same, bias_weight=0.5), np.full(4, 0.5))


def test_lower_index_wins_a_tie() -> None:
    assert highest(np.array([1, 5, 5, 5, 0, 5], np.float32), 3) == [1, 2, 3]


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=40), st.data())
def test_choice_is_the_head_of_a_sort_by_score_and_index(
    values: list[float], data: st.DataObject
) -> None:
    count = data.draw(st.integers(0, len(values)))
    order = sorted(range(len(values)), key=lambda index: (-values[index], index))

    assert highest(np.array(values, np.float32), count) == sorted(order[:count])


@given(st.lists(st.floats(0, 1e6, width=32), min_size=2, max_size=30), st.floats(0, 1))
def test_scores_stay_between_zero_and_one(values: list[float], weight: float) -> None:
    bias = np.array(values, np.float32)

    scores = combined_scores(bias, bias[::-1], bias_weight=weight)

    assert scores.min() >= 0
    assert scores.max() <= 1


@pytest.mark.parametrize("bias_weight", [0.9, 1.0])
def test_layer_without_reaction_is_ranked_by_importance_with_a_warning(bias_weight: float) -> None:
    importance = {n: np.arange(10, 0, -1, dtype=np.float32) for n in range(2)}
    bias = {0: np.full(10, 1e-9, np.float32), 1: np.arange(10, dtype=np.float32) + 1}
    bias[0][0] = 5e-9

    chosen = select_neurons(bias, importance, config(bias_weight=bias_weight), DIMENSIONS)

    assert chosen.removed[0] == [7, 8, 9]
    assert [warning.code for warning in chosen.warnings] == ["no_bias_signal"]
    assert "Layer 0" in chosen.warnings[0].message


def test_named_neurons_are_taken_as_they_are() -> None:
    named = config(fraction=None, neuron_indices={"1": [7, 2]})

    chosen = select_neurons({}, {}, named, DIMENSIONS)

    assert chosen.removed == {0: [], 1: [2, 7]}
    assert chosen.effective_fraction == pytest.approx(0.1)


def test_requested_and_effective_fraction_differ_by_rounding() -> None:
    scores = {n: np.arange(10, dtype=np.float32) for n in range(2)}

    chosen = select_neurons(scores, scores, config(fraction=0.15, round_to_multiple=8), DIMENSIONS)

    assert chosen.requested_fraction == pytest.approx(0.15)
    assert chosen.effective_fraction == pytest.approx(0.2)


def test_only_named_layers_lose_neurons() -> None:
    scores = {n: np.arange(10, dtype=np.float32) for n in range(2)}

    chosen = select_neurons(scores, scores, config(layers=[1]), DIMENSIONS)

    assert {layer: len(neurons) for layer, neurons in chosen.removed.items()} == {0: 0, 1: 3}


def test_scores_of_the_wrong_width_are_refused() -> None:
    scores = {n: np.arange(9, dtype=np.float32) for n in range(2)}

    with pytest.raises(ValueError, match="dimensions"):
        select_neurons(scores, scores, config(), DIMENSIONS)
