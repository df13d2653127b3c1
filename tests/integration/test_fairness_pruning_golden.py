"""Fairness Pruning against numbers of the public implementation on stories260K."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fairness_pruning_jobs import QUIET, Job, job_context, run_job
from workers.methods.fairness_pruning.measuring.alignment import token_labels
from workers.methods.fairness_pruning.measuring.batches import make_batches
from workers.methods.fairness_pruning.measuring.bias_scores import ScoreRule, new_bias_scores
from workers.methods.fairness_pruning.measuring.capture import capture_points
from workers.methods.fairness_pruning.measuring.diagnosis import Diagnosis, diagnose
from workers.methods.fairness_pruning.measuring.metrics import PARITY_POINTS
from workers.methods.fairness_pruning.measuring.subject import Subject, load_subject, read_plan

# float32 on another CPU or thread count moves these means by about 1e-7.
TOLERANCE = 1e-5

ARTICLE_BEHAVIOUR = {"mechanical": 0.001398, "behavioural": 0.005747}


@pytest.fixture(scope="module")
def golden(shared_data: Path) -> dict[str, Any]:
    path = shared_data / "golden" / "optipfair_stories260k.json"
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


@pytest.fixture(scope="module")
def stories(shared_data: Path) -> Path:
    return shared_data / "models" / "stories260k-llama"


@pytest.fixture(scope="module")
def pairs(golden: dict[str, Any]) -> list[dict[str, str]]:
    return [
        {"prompt_1": first, "prompt_2": second} for first, second in golden["equal_length_pairs"]
    ]


@pytest.fixture(scope="module")
def run(
    stories: Path, pairs: list[dict[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Job]:
    """Run a job on the golden pairs; `which` is a name of the golden file."""
    finished: dict[str, Job] = {}

    def run_once(which: str, **config: Any) -> Job:
        chosen = pairs[:1] if which == "pair0" else pairs
        key = json.dumps([which, config], sort_keys=True)
        if key not in finished:
            root = tmp_path_factory.mktemp("job")
            finished[key] = run_job(stories, root, {**QUIET, "pairs": chosen, **config})
        return finished[key]

    return run_once


@pytest.fixture(scope="module")
def subject(
    stories: Path, pairs: list[dict[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> Subject:
    context = job_context(stories, tmp_path_factory.mktemp("job"), {**QUIET, "pairs": pairs})
    return load_subject(context, stories, read_plan(context))


@pytest.fixture(scope="module")
def base(subject: Subject) -> Diagnosis:
    points = capture_points(subject.shape.layout)
    return diagnose(subject.decoder, subject.batches, n_pairs=5, points=points)


def test_every_layer_and_component_agrees(base: Diagnosis, golden: dict[str, Any]) -> None:
    for number, entry in enumerate(golden["pairs"][:5]):
        for key, expected in entry["layer_mean_difference"].items():
            component, layer = key.rsplit("_layer_", 1)
            measured = base.of("mean", component)[int(layer), number]
            assert measured == pytest.approx(expected, abs=TOLERANCE), key


def test_the_layer_table_holds_every_pair_before_and_after(
    run: Callable[..., Job], golden: dict[str, Any]
) -> None:
    job = run("all", preset="article", fraction=0.02)

    table = json.loads((job.context.out_dir / "layers.json").read_text())

    for number, entry in enumerate(golden["pairs"][:5]):
        for key, expected in entry["layer_mean_difference"].items():
            component, layer = key.rsplit("_layer_", 1)
            found = table["components"][component]["before"]["mean"][int(layer)][number]
            assert found == pytest.approx(expected, abs=TOLERANCE), key
    keys = [table["components"][point]["after"]["mean"] for point in PARITY_POINTS]
    after = [pair["bias_metric_parity"]["after"] for pair in job.report["pairs"]]
    # The same numbers in another order of summation.
    assert np.mean(keys, axis=(0, 1)) == pytest.approx(after, rel=1e-12)


def test_labels_are_those_of_the_forward_pass(subject: Subject, golden: dict[str, Any]) -> None:
    for pair, entry in zip(subject.plan.pairs, golden["pairs"], strict=False):
        assert subject.tokenizer.convert_ids_to_tokens(list(pair.ids_1)) == entry["tokens1"]
        assert len(token_labels(subject.tokenizer, pair.ids_1)) == entry["len1"]


@pytest.mark.parametrize(
    ("name", "bias_point", "aggregation"),
    [
        ("gate_up_mean/all_equal_length", "gate_up", "mean"),
        ("down_input_mean/all_equal_length", "down_input", "mean"),
        ("down_input_mean/pair0", "down_input", "mean"),
    ],
)
def test_neuron_scores_of_the_peer_reduction_agree(
    subject: Subject, golden: dict[str, Any], name: str, bias_point: Any, aggregation: Any
) -> None:
    dimensions = subject.shape.dimensions
    rule = ScoreRule(bias_point, "mean_then_abs", "all", aggregation)
    scores = new_bias_scores(
        rule, has_gate=True, categories=1, layers=dimensions.layers, neurons=dimensions.neurons
    )
    n_pairs = 1 if name.endswith("pair0") else 5
    chosen = make_batches(subject.plan.token_pairs()[:n_pairs])
    points = capture_points(subject.shape.layout)
    diagnose(subject.decoder, chosen, n_pairs=n_pairs, points=points, scores=scores)
    measured = scores.mean_or_max(np.array([n_pairs]))[0]

    entries = golden["neuron_bias"][name]
    for layer in range(dimensions.layers):
        if bias_point == "gate_up":
            parts = [entries[f"{point}_layer_{layer}"] for point in ("gate_proj", "up_proj")]
            expected = np.mean([part["first8"] for part in parts], axis=0)
        else:
            expected = np.array(entries[f"down_proj_input_layer_{layer}"]["first8"])
        np.testing.assert_allclose(measured[layer, :8], expected, atol=TOLERANCE)


def golden_runs(kind: str) -> list[int]:
    return list(range({"article_hybrid": 6, "prune": 8}[kind]))


@pytest.mark.parametrize("number", golden_runs("article_hybrid"))
def test_article_preset_removes_the_same_neurons_to_the_same_effect(
    run: Callable[..., Job], golden: dict[str, Any], number: int
) -> None:
    entry = golden["article_hybrid"][number]

    job = run(
        entry["pairs"],
        preset="article",
        fraction=entry["fraction"],
        bias_weight=entry["bias_weight"],
    )

    assert job.report["removed"] == entry["removed"]
    assert_parity(job, entry)


@pytest.mark.parametrize("number", golden_runs("prune"))
def test_optipfair_preset_removes_the_same_neurons_to_the_same_effect(
    run: Callable[..., Job], golden: dict[str, Any], number: int
) -> None:
    entry = golden["prune"][number]

    job = run(
        entry["pairs"],
        preset="optipfair",
        fraction=entry["pruning_percentage"] / 100,
        bias_weight=entry["bias_weight"],
    )

    assert job.report["removed"] == entry["removed"]
    assert job.report["parameters"] == {
        "before": entry["params_before"],
        "after": entry["params_after"],
    }
    assert_parity(job, entry)


@pytest.mark.parametrize("key", ["pair0/0.02", "pair0/0.05", "pairs0-4/0.02", "pairs0-4/0.05"])
def test_plain_defaults_remove_the_golden_neurons(
    run: Callable[..., Job], golden: dict[str, Any], key: str
) -> None:
    which, fraction = key.split("/")

    job = run(which, fraction=float(fraction))

    assert job.report["removed"] == golden["formula_max_abs_abs_then_mean_w0.5"][key]


def test_the_part_that_is_mere_arithmetic_is_told_apart(run: Callable[..., Job]) -> None:
    job = run("pair0", preset="article", fraction=0.05)

    parity = job.report["pairs"][0]["bias_metric_parity"]
    for name, expected in ARTICLE_BEHAVIOUR.items():
        assert parity[name] == pytest.approx(expected, abs=2e-6)
    assert parity["before"] - parity["after"] == pytest.approx(
        parity["mechanical"] + parity["behavioural"], abs=1e-8
    )


@pytest.mark.parametrize("which", ["pair0", "pairs0-4"])
def test_the_split_is_the_same_for_removed_zeroed_and_padded_neurons(
    run: Callable[..., Job], which: str
) -> None:
    base_config = {"preset": "article", "fraction": 0.05}
    pruned = run(which, **base_config)
    zeroed = run(which, **base_config, mode="zero")
    removed = {layer: list(n) for layer, n in pruned.report["removed"].items()}
    # One neuron less in layer 0 makes all others carry one neuron of padding.
    uneven = {**removed, "0": removed["0"][:-1]}
    padded = run(which, neuron_indices=uneven, fraction=None)
    uneven_zeroed = run(which, neuron_indices=uneven, fraction=None, mode="zero")

    assert padded.report["padding_neurons"]
    for first, second in ((pruned, zeroed), (padded, uneven_zeroed)):
        for left, right in zip(first.report["pairs"], second.report["pairs"], strict=True):
            for part in ("mechanical", "behavioural"):
                difference = left["bias_metric_parity"][part] - right["bias_metric_parity"][part]
                assert abs(difference) < 1e-6


def test_generated_texts_agree_before_and_after(
    run: Callable[..., Job], golden: dict[str, Any]
) -> None:
    job = run("pair0", preset="article", fraction=0.02, generation={"max_pairs": 1})

    texts = [
        (entry["before"]["text"], entry["after"]["text"]) for entry in job.report["generations"]
    ]
    expected = golden["generation"]
    assert [before for before, _ in texts] == expected["before"]
    assert [after for _, after in texts] == expected["after_article_hybrid_0"]
    for entry in job.report["generations"]:
        first = entry["first_difference"]
        assert entry["before"]["ids"][:first] == entry["after"]["ids"][:first]
        assert entry["before"]["ids"][first] != entry["after"]["ids"][first]


def test_checkpoint_loads_without_this_package_and_equals_the_masked_original(
    run: Callable[..., Job], stories: Path
) -> None:
    job = run("pair0", preset="article", fraction=0.02)
    removed = json.dumps(job.report["removed"])
    program = f"""
import sys, torch
sys.path = [p for p in sys.path if p not in ("", {str(Path.cwd())!r})]
from transformers import AutoModelForCausalLM
pruned = AutoModelForCausalLM.from_pretrained({str(job.checkpoint)!r}).eval()
masked = AutoModelForCausalLM.from_pretrained({str(stories)!r}).eval()
for layer, neurons in {removed}.items():
    masked.model.layers[int(layer)].mlp.down_proj.weight.data[:, neurons] = 0
ids = torch.arange(1, 40)[None]
with torch.no_grad():
    a, b = pruned(ids).logits, masked(ids).logits
assert not any(name.split(".")[0] in ("workers", "app") for name in sys.modules)
print(float((a - b).abs().max()))
"""

    finished = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True
    )

    assert float(finished.stdout) < TOLERANCE


def test_parity_components_are_the_six_of_the_public_implementation(
    golden: dict[str, Any],
) -> None:
    assert {point.value for point in PARITY_POINTS} == set(
        golden["pairs"][0]["component_mean_difference"]
    )


def assert_parity(job: Job, entry: dict[str, Any]) -> None:
    measured = [pair["bias_metric_parity"] for pair in job.report["pairs"]]
    np.testing.assert_allclose(
        [pair["before"] for pair in measured], entry["overall_before"], atol=TOLERANCE
    )
    np.testing.assert_allclose(
        [pair["after"] for pair in measured], entry["overall_after"], atol=TOLERANCE
    )
