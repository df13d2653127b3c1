"""Differences of activations against a slow reading of the same model, pair by pair."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from app.domain.architectures import find_layout
from app.domain.errors import JobErrorCode, JobFailure
from tests.fairness_pruning_jobs import QUIET, job_context, pair, word_model
from tests.tiny_models import HIDDEN, LAYERS, NEURONS
from workers.methods.fairness_pruning.measuring.batches import make_batches
from workers.methods.fairness_pruning.measuring.bias_scores import ScoreRule, new_bias_scores
from workers.methods.fairness_pruning.measuring.calibration import activation_norms, windows
from workers.methods.fairness_pruning.measuring.capture import (
    NEURON_POINTS,
    CapturePoint,
    Decoder,
    capture,
    capture_points,
)
from workers.methods.fairness_pruning.measuring.diagnosis import Diagnosis, PictureRequest, diagnose
from workers.methods.fairness_pruning.measuring.metrics import PARITY, layer_curves, pair_metrics
from workers.methods.fairness_pruning.measuring.subject import Subject, load_subject, read_plan

PAIRS = [
    pair("the man was very old", "the woman was very old"),
    pair("one day a boy saw the house", "one day a girl saw the house"),
    pair("the man said it", "the tall and happy woman said it"),
    pair("the old man was in the house", "the man was in the house"),
    pair("the man was very old", "the boy was very old"),
]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return word_model(tmp_path_factory.mktemp("model") / "llama")


def open_subject(model_dir: Path, root: Path, pairs: list[dict[str, Any]]) -> Subject:
    context = job_context(model_dir, root, {**QUIET, "fraction": 0.1, "pairs": pairs})
    return load_subject(context, model_dir, read_plan(context))


@pytest.fixture(scope="module")
def subject(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return open_subject(model_dir, tmp_path_factory.mktemp("job"), PAIRS)


def measure(subject: Subject, *, max_tokens: int = 512, **options: Any) -> Diagnosis:
    return diagnose(
        subject.decoder,
        make_batches(subject.plan.token_pairs(), max_tokens=max_tokens),
        n_pairs=len(subject.plan.measured),
        points=capture_points(subject.shape.layout),
        **options,
    )


def read_alone(subject: Subject, ids: tuple[int, ...]) -> dict[tuple[str, int], np.ndarray]:
    """Activations of one prompt by itself, without batch, padding or mask."""
    seen: dict[tuple[str, int], np.ndarray] = {}

    def observe(point: CapturePoint, layer: int, activations: torch.Tensor) -> None:
        seen[point.value, layer] = activations[0].double().numpy().copy()

    points = capture_points(subject.shape.layout)
    with torch.inference_mode(), capture(subject.decoder, observe, points=points):
        subject.model(torch.tensor([ids]))
    return seen


def slots_alone(
    subject: Subject, number: int, key: tuple[str, int]
) -> tuple[np.ndarray, np.ndarray]:
    planned = subject.plan.pairs[number]
    one, two = (read_alone(subject, ids)[key] for ids in (planned.ids_1, planned.ids_2))
    slots = planned.alignment.slots
    return (
        np.stack([one[slot.start_1 : slot.stop_1].mean(axis=0) for slot in slots]),
        np.stack([two[slot.start_2 : slot.stop_2].mean(axis=0) for slot in slots]),
    )


@pytest.mark.parametrize("point", list(CapturePoint))
def test_every_statistic_agrees_with_a_slow_reading(subject: Subject, point: CapturePoint) -> None:
    found = measure(subject)

    for number in range(len(PAIRS)):
        first = subject.plan.pairs[number].alignment.first_affected
        for layer in range(LAYERS):
            one, two = slots_alone(subject, number, (point.value, layer))
            difference = np.abs(one - two)
            expected = {
                "mean": difference.mean(),
                "affected_mean": difference[first:].mean() if len(difference) > first else 0.0,
                "scale": (np.abs(one).mean() + np.abs(two).mean()) / 2,
                "max": difference.max(),
                "square_sum": (difference**2).sum(),
            }
            for name, value in expected.items():
                measured = found.of(name, point)[layer, number]
                assert measured == pytest.approx(value, rel=1e-4, abs=1e-6), (name, number)


def test_layer_curves_describe_the_differences_of_each_layer(subject: Subject) -> None:
    slots = np.array([len(planned.alignment.slots) for planned in subject.plan.pairs])
    widths = {p: NEURONS if p in NEURON_POINTS else HIDDEN for p in CapturePoint}

    curves = layer_curves(measure(subject), [0, 3], slots=slots, widths=widths)["gate_proj"]

    differences = [np.abs(np.subtract(*slots_alone(subject, n, ("gate_proj", 2)))) for n in (0, 3)]
    assert curves["max"][2] == pytest.approx(max(d.max() for d in differences), rel=1e-5)
    assert curves["std"][2] == pytest.approx(np.mean([d.std() for d in differences]), rel=1e-4)
    assert curves["l2"][2] == pytest.approx(
        np.mean([np.linalg.norm(d) for d in differences]), rel=1e-5
    )
    first = [subject.plan.pairs[n].alignment.first_affected for n in (0, 3)]
    affected = [d[start:].mean() for d, start in zip(differences, first, strict=True)]
    assert curves["affected_mean"][2] == pytest.approx(np.mean(affected), rel=1e-5)
    assert curves["affected_relative"][2] > curves["relative"][2]


def test_module_names_are_those_of_the_layer(subject: Subject) -> None:
    ids = torch.tensor([subject.plan.pairs[0].ids_1])
    seen = read_alone(subject, subject.plan.pairs[0].ids_1)

    hidden = subject.model(ids, output_hidden_states=True).hidden_states
    layer = subject.model.model.layers[0]

    with torch.inference_mode():
        norm = layer.input_layernorm(hidden[0])[0]
        added = (hidden[1] - hidden[0])[0]
    np.testing.assert_allclose(seen["input_norm", 0], norm, atol=1e-5)
    np.testing.assert_allclose(
        seen["attention_output", 0] + seen["mlp_output", 0], added.detach(), atol=1e-5
    )
    gated = torch.nn.functional.silu(torch.tensor(seen["gate_proj", 0])).numpy()
    np.testing.assert_allclose(seen["down_proj_input", 0], gated * seen["up_proj", 0], atol=1e-5)


@pytest.mark.parametrize("max_tokens", [1, 20, 33])
def test_batch_size_does_not_matter(subject: Subject, max_tokens: int) -> None:
    one_batch, more = measure(subject), measure(subject, max_tokens=max_tokens)

    for name, values in one_batch.statistics.items():
        np.testing.assert_allclose(more.statistics[name], values, rtol=1e-5, atol=1e-7)


def test_swapped_and_reordered_pairs_give_the_same_scores_to_the_bit(
    model_dir: Path, tmp_path: Path
) -> None:
    swapped = [pair(p["prompt_2"], p["prompt_1"]) for p in reversed(PAIRS)]
    totals = []
    for number, pairs in enumerate((PAIRS, swapped)):
        subject = open_subject(model_dir, tmp_path / str(number), pairs)
        totals.append(score(subject, ScoreRule("gate_up", "abs_then_mean", "all", "mean")))

    np.testing.assert_array_equal(totals[0], totals[1])


def test_a_doubled_list_of_pairs_gives_the_same_scores(model_dir: Path, tmp_path: Path) -> None:
    rule = ScoreRule("gate_up", "abs_then_mean", "all", "mean")
    once = score(open_subject(model_dir, tmp_path / "a", PAIRS[:4]), rule)
    twice = score(open_subject(model_dir, tmp_path / "b", PAIRS[:4] * 2), rule)

    np.testing.assert_allclose(once, twice, rtol=1e-6)


def score(subject: Subject, rule: ScoreRule) -> np.ndarray:
    scores = new_bias_scores(rule, has_gate=True, categories=1, layers=LAYERS, neurons=NEURONS)
    measure(subject, scores=scores)
    columns = subject.plan.columns("selection")
    return scores.mean_or_max(np.array([len(columns)]))[0]


@pytest.mark.parametrize("bias_point", ["gate_up", "down_input"])
@pytest.mark.parametrize("token_reduction", ["abs_then_mean", "mean_then_abs"])
@pytest.mark.parametrize("score_tokens", ["all", "affected"])
@pytest.mark.parametrize("pair_aggregation", ["mean", "max"])
def test_bias_scores_agree_with_their_formula(
    subject: Subject,
    bias_point: Any,
    token_reduction: Any,
    score_tokens: Any,
    pair_aggregation: Any,
) -> None:
    rule = ScoreRule(bias_point, token_reduction, score_tokens, pair_aggregation)
    points = ["down_proj_input"] if bias_point == "down_input" else ["gate_proj", "up_proj"]

    per_pair = []
    for number, planned in enumerate(subject.plan.pairs):
        first = planned.alignment.first_affected if score_tokens == "affected" else 0
        parts = []
        for point in points:
            if token_reduction == "abs_then_mean":
                one, two = slots_alone(subject, number, (point, 1))
                kept = np.abs(one - two)[first:]
                parts.append(kept.mean(axis=0) if len(kept) else np.zeros(NEURONS))
            else:
                rows = [
                    read_alone(subject, ids)[point, 1][first:]
                    for ids in (planned.ids_1, planned.ids_2)
                ]
                means = [side.mean(axis=0) for side in rows]
                parts.append(np.abs(means[0] - means[1]) / len(points))
        per_pair.append(np.sum(parts, axis=0))
    expected = np.max(per_pair, axis=0) if pair_aggregation == "max" else np.mean(per_pair, axis=0)

    np.testing.assert_allclose(score(subject, rule)[1], expected, rtol=1e-4, atol=1e-6)


def test_tokens_before_the_first_difference_do_not_differ(subject: Subject) -> None:
    every_key = frozenset((p, n) for p in CapturePoint for n in range(LAYERS))
    found = measure(subject, pictures=PictureRequest(every_key, frozenset(range(len(PAIRS)))))

    for (number, _, _), (one, two) in found.pictures.items():
        first = subject.plan.pairs[number].alignment.first_affected
        assert first > 0
        assert np.abs(one[:first] - two[:first]).max() < 1e-5


def test_the_largest_difference_of_the_first_gate_is_at_the_swapped_word(subject: Subject) -> None:
    key = (CapturePoint.GATE_PROJ, 0)
    found = measure(subject, pictures=PictureRequest(frozenset([key]), frozenset([0, 1])))

    for number, word in ((0, "man"), (1, "boy")):
        one, two = found.pictures[(number, *key)]
        place = int(np.abs(one - two).mean(axis=1).argmax())
        ids = subject.plan.pairs[number].ids_1
        assert subject.tokenizer.convert_ids_to_tokens(ids[place]) == word


def test_bfloat16_gives_the_metric_to_one_percent(model_dir: Path, tmp_path: Path) -> None:
    metrics = []
    for dtype in ("float32", "bfloat16"):
        context = job_context(model_dir, tmp_path / dtype, {"pairs": PAIRS, "fraction": 0.1})
        context.dtype = dtype
        subject = load_subject(context, model_dir, read_plan(context))
        metrics.append(pair_metrics(measure(subject))[PARITY].mean())

    assert metrics[1] == pytest.approx(metrics[0], rel=1e-2)


@pytest.mark.parametrize(
    ("tensor", "key"),
    [
        ("model.layers.1.mlp.up_proj.weight", "up_proj_layer_1"),
        ("model.layers.1.input_layernorm.weight", "input_norm_layer_1"),
        ("lm_head.weight", "logits"),
    ],
)
def test_a_non_finite_activation_names_its_key_and_pair(
    tmp_path: Path, tensor: str, key: str
) -> None:
    folder = word_model(tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.get_parameter(tensor).view(-1)[5] = float("nan")
    model.save_pretrained(folder)
    subject = open_subject(folder, tmp_path / "job", PAIRS)

    with pytest.raises(JobFailure) as failed:
        measure(subject, with_loss=True)

    assert failed.value.code is JobErrorCode.NUMERICAL_FAILURE
    assert failed.value.fields["key"] == key
    assert "non_finite_activation" in failed.value.message


def test_a_non_finite_activation_is_not_laid_at_the_door_of_another_pair(tmp_path: Path) -> None:
    folder = word_model(tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(folder)
    pairs = [*PAIRS[:2], pair("the old cook was tall", "the old doctor was tall"), PAIRS[4]]
    cook = AutoTokenizer.from_pretrained(folder)("cook")["input_ids"][-1]
    with torch.no_grad():
        model.get_input_embeddings().weight[cook] = float("nan")
    model.save_pretrained(folder)

    with pytest.raises(JobFailure) as failed:
        measure(open_subject(folder, tmp_path / "job", pairs))

    assert failed.value.fields["pair"] == 2


def test_a_model_without_a_named_module_is_refused(subject: Subject) -> None:
    layout = find_layout("llama")
    assert layout is not None
    decoder = Decoder(torch.nn.Linear(2, 2), layout, 1)

    with pytest.raises(JobFailure, match=r"model\.layers\.0") as failed:
        decoder.down_projection(0)

    assert failed.value.code is JobErrorCode.UNSUPPORTED_ARCHITECTURE


@pytest.mark.parametrize("max_tokens", [1, 512])
def test_loss_is_that_of_the_model_on_each_prompt(subject: Subject, max_tokens: int) -> None:
    found = measure(subject, max_tokens=max_tokens, with_loss=True)

    assert found.loss is not None
    for number, planned in enumerate(subject.plan.pairs):
        with torch.inference_mode():
            losses = [
                subject.model(torch.tensor([ids]), labels=torch.tensor([ids])).loss.item()
                for ids in (planned.ids_1, planned.ids_2)
            ]
        assert found.loss[number] == pytest.approx(np.mean(losses), rel=1e-5)


def test_calibration_norms_sum_squares_over_all_windows(subject: Subject) -> None:
    texts = [planned.ids_1 for planned in subject.plan.pairs[:3]]

    found = activation_norms(subject.decoder, windows(texts, max_positions=64), neurons=NEURONS)

    squares = sum(
        (read_alone(subject, text)["down_proj_input", 2] ** 2).sum(axis=0) for text in texts
    )
    np.testing.assert_allclose(found[2], np.sqrt(squares), rtol=1e-5)


def test_long_calibration_texts_are_cut_to_the_positions_of_the_model() -> None:
    assert windows([range(7)], max_positions=3) == [(0, 1, 2), (3, 4, 5), (6,)]
