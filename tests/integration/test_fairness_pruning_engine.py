"""Whole Fairness Pruning jobs on small models."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from app.domain.errors import JobErrorCode, JobFailure
from app.domain.ids import IdPrefix, format_id, new_id
from tests.fairness_pruning_jobs import PAIR_0, QUIET, Job, job_context, pair, run_job, word_model
from tests.tiny_models import FAMILIES, LAYERS, NEURONS
from workers.methods.fairness_pruning.engine import Engine
from workers.methods.fairness_pruning.measuring.generation import continue_prompts
from workers.methods.fairness_pruning.measuring.subject import load_subject, read_plan
from workers.methods.fairness_pruning.selecting.controls import (
    BEYOND_CHANCE,
    NO_CONTROLS,
    NOTHING_REMOVED,
    SELECTION_ONLY,
)
from workers.models import load
from workers.runtime.context import PhaseOutput, Stopped
from workers.runtime.local import run_locally

TAILS = ("was very old", "is happy", "said it", "saw the house", "was in the house", "and a cook")
PAIRS = [pair(f"the man {tail}", f"the woman {tail}", category="gender") for tail in TAILS]
AGES = [pair(f"the old cook {tail}", f"the big cook {tail}", category="age") for tail in TAILS]
NEUTRAL = [pair(f"the red house {tail}", f"the small house {tail}") for tail in TAILS[:3]]
FEW_CONTROLS = {"controls": {"random_seeds": 3}, "plots": [], "generation": {"max_pairs": 0}}


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return word_model(tmp_path_factory.mktemp("model") / "llama")


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_goes_from_pairs_to_a_checkpoint_that_equals_its_masked_base(
    tmp_path: Path, family: str, sharded: bool
) -> None:
    base_dir = word_model(tmp_path / "model", family, sharded=sharded)

    config = {**QUIET, "pairs": PAIRS, "neurons_per_layer": 4, "fraction": None}
    job = run_job(base_dir, tmp_path / "job", config)

    pruned = AutoModelForCausalLM.from_pretrained(job.checkpoint).eval()
    masked = AutoModelForCausalLM.from_pretrained(base_dir).eval()
    with torch.no_grad():
        for layer, neurons in job.report["removed"].items():
            assert len(neurons) == 4
            masked.model.layers[int(layer)].mlp.down_proj.weight[:, neurons] = 0
        ids = torch.arange(1, 31)[None]
        logits, expected = pruned(ids).logits, masked(ids).logits
    assert float((logits - expected).abs().max()) <= 1e-4 * float(expected.abs().max())
    assert job.report["parameters"]["before"] - job.report["parameters"]["after"] == (
        LAYERS * 4 * 3 * 32
    )
    for entry in job.report["pairs"]:
        assert entry["bias_metric_parity"]["before"] > 0


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "prune"},
        {"mode": "zero"},
        {"mode": "scale", "scale_factor": 0.25},
        {"mode": "prune", "layers": [0, 2]},
    ],
    ids=["prune", "zero", "scale", "padded"],
)
def test_a_control_in_memory_shows_what_the_stored_edit_would(
    model_dir: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    amount = {"neurons_per_layer": 5, "fraction": None}
    job = run_job(model_dir, tmp_path / "a", {"pairs": PAIRS, **FEW_CONTROLS, **amount, **options})
    drawn = {
        layer: neurons
        for layer, neurons in job.report["controls"]["removed"]["random_0"].items()
        if neurons
    }
    by_index = {key: value for key, value in options.items() if key != "layers"}

    stored = run_job(
        model_dir,
        tmp_path / "b",
        {"pairs": PAIRS, **QUIET, **by_index, "neuron_indices": drawn, "fraction": None},
    )

    masked = job.report["controls"]["groups"]["selection"]["after"]["random_0"]
    real = stored.report["controls"]["groups"]["selection"]["after"]["selection"]
    assert set(masked) == set(real)
    for name, value in masked.items():
        assert value == pytest.approx(real[name], abs=1e-6), name
    assert job.report["language"]["loss"]["random_0"] == pytest.approx(
        stored.report["language"]["loss"]["after"], rel=1e-5
    )


def planted_model(folder: Path) -> Path:
    """Build a model in which neuron 7 of layer 0 fires for `woman` alone, and loudly."""
    word_model(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        layer = model.model.layers[0]
        # Without attention the MLP of layer 0 sees the embedding of its own token only.
        layer.self_attn.o_proj.weight.zero_()
        table = torch.nn.functional.normalize(model.model.embed_tokens.weight, dim=1)
        woman = table[WOMAN]
        others = torch.cat([table[:WOMAN], table[WOMAN + 1 :]])
        # The direction of `woman` that no other word of the vocabulary used here shares.
        used = others[3:30]
        direction = woman - torch.linalg.lstsq(used.T, woman[:, None]).solution[:, 0] @ used
        direction = torch.nn.functional.normalize(direction, dim=0)
        layer.mlp.gate_proj.weight[7] = 6 * direction
        layer.mlp.up_proj.weight[7] = 6 * direction
        layer.mlp.down_proj.weight[:, 7] = torch.randn(32) * 2
    model.save_pretrained(folder)
    return folder


WOMAN = 6


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted_model(tmp_path_factory.mktemp("planted") / "model")


def planted_job(planted: Path, root: Path, **options: Any) -> Job:
    held_out = [pair(f"a man {tail}", f"a woman {tail}") for tail in TAILS]
    config = {
        "pairs": PAIRS[:3],
        "holdout_pairs": held_out,
        "neurons_per_layer": 1,
        "fraction": None,
        "layers": [0],
        "mode": "zero",
        "bias_weight": 1.0,
        **FEW_CONTROLS,
    }
    # With this seed no random draw happens to hit the one neuron that matters.
    return run_job(planted, root, {**config, **options}, seed=1)


def test_a_planted_neuron_is_found_and_beats_the_controls(planted: Path, tmp_path: Path) -> None:
    job = planted_job(planted, tmp_path)

    assert job.report["removed"]["0"] == [7]
    assert job.report["verdict"]["wording"] == BEYOND_CHANCE
    assert job.report["verdict"]["claim"] is True


def test_removing_other_neurons_than_the_planted_one_is_no_claim(
    planted: Path, tmp_path: Path
) -> None:
    others = {"neuron_indices": {"0": [8]}, "neurons_per_layer": None, "layers": None}

    job = planted_job(planted, tmp_path, **others)

    assert job.report["verdict"]["wording"] != BEYOND_CHANCE
    assert job.report["verdict"]["claim"] is False


def test_a_neuron_with_large_weights_is_never_selected_by_importance_alone(
    planted: Path, tmp_path: Path
) -> None:
    options = {"bias_weight": 0.0, "neurons_per_layer": NEURONS - 1}

    job = planted_job(planted, tmp_path, **options, controls={"enabled": False})

    assert 7 not in job.report["removed"]["0"]


def test_removing_nothing_changes_nothing(model_dir: Path, tmp_path: Path) -> None:
    job = run_job(model_dir, tmp_path, {"pairs": PAIRS, "fraction": 0.0, **FEW_CONTROLS})

    for entry in job.report["pairs"]:
        for metric in ("bias_metric_parity", "bias_metric_mlp", "bias_metric_relative"):
            assert entry[metric]["before"] == entry[metric]["after"]
    assert job.report["verdict"]["wording"] == NOTHING_REMOVED
    base, edited = model_dir / "model.safetensors", job.checkpoint / "model.safetensors"
    assert base.read_bytes() == edited.read_bytes()


def test_neurons_by_index_need_no_pairs(model_dir: Path, tmp_path: Path) -> None:
    config = {**QUIET, "neuron_indices": {"1": [0, 3]}, "fraction": None}

    job = run_job(model_dir, tmp_path, config)

    assert job.report["pairs"] == []
    assert job.report["removed"] == {"0": [], "1": [0, 3], "2": []}
    assert job.result.summary == ()


def test_without_controls_the_report_says_so(model_dir: Path, tmp_path: Path) -> None:
    job = run_job(model_dir, tmp_path, {"pairs": PAIRS, "fraction": 0.1, **QUIET})

    assert job.report["verdict"]["wording"] == NO_CONTROLS
    assert "No controls were run" in job.report["warnings"][0]


def test_card_of_an_edit_without_a_claim_recommends_no_use(model_dir: Path, tmp_path: Path) -> None:
    job = run_job(model_dir, tmp_path, {"pairs": PAIRS, "fraction": 0.1, **QUIET})

    card = (job.checkpoint / "README.md").read_text()
    assert "drop-in replacement" not in card
    assert "For study." in card


def test_one_pair_and_one_neuron_are_told_in_the_singular(model_dir: Path, tmp_path: Path) -> None:
    config = {"pairs": PAIRS[:1], "neuron_indices": {"0": [1]}, **QUIET}
    job = run_job(model_dir, tmp_path, config)

    card = (job.checkpoint / "README.md").read_text()
    assert "\n1 neuron removed in 1 of " in card
    assert "; 1 selection pair\n" in card


def test_card_tells_how_to_repeat_its_job(model_dir: Path, tmp_path: Path) -> None:
    context = job_context(model_dir, tmp_path, {"pairs": PAIRS, "fraction": 0.1, **QUIET})
    job_id = format_id(IdPrefix.JOB, new_id(now_ms=1_767_225_600_000))
    context.provenance = {**context.provenance, "job_id": job_id}

    run_locally(Engine(), context)

    card = (context.out_dir / "checkpoint" / "README.md").read_text()
    assert f"/v1/jobs/{job_id}/spec" in card


def test_few_held_out_pairs_allow_no_claim(model_dir: Path, tmp_path: Path) -> None:
    job = run_job(model_dir, tmp_path, {"pairs": PAIRS, "fraction": 0.1, **FEW_CONTROLS})

    assert job.report["verdict"]["wording"] == SELECTION_ONLY


def test_skipped_pairs_are_listed_without_numbers(model_dir: Path, tmp_path: Path) -> None:
    pairs = [PAIRS[0], pair("the man said it", "the tall woman said it")]
    config = {"pairs": pairs, "fraction": 0.1, "on_length_mismatch": "skip", **QUIET}

    job = run_job(model_dir, tmp_path, config)

    kept, left_out = job.report["pairs"]
    assert not kept["skipped"]
    assert left_out["skipped"]
    assert left_out["n_tokens"] == [5, 6]
    assert "bias_metric_parity" not in left_out
    assert any("left out" in warning for warning in job.report["warnings"])


def test_summary_has_every_category_and_split(model_dir: Path, tmp_path: Path) -> None:
    pairs = [{**p, "split": "holdout" if n % 3 == 2 else "selection"}
             for n, p in enumerate([*PAIRS, *AGES])]  # fmt: skip
    config = {"pairs": pairs, "control_pairs": NEUTRAL, "fraction": 0.1, **QUIET}

    job = run_job(model_dir, tmp_path, config)

    assert {row.group for row in job.result.summary} == {
        "age, selection pairs",
        "gender, selection pairs",
        "all selection pairs",
        "age, held-out pairs",
        "gender, held-out pairs",
        "all held-out pairs",
        "control pairs",
    }
    assert [entry["prompt_1"] for entry in job.report["pairs"]] == [
        p["prompt_1"] for p in [*pairs, *NEUTRAL]
    ]
    overlap = json.loads((job.context.out_dir / "neuron_map.json").read_text())
    assert overlap["pair_counts"] == {"age": 4, "gender": 4}


def test_a_change_on_control_pairs_is_neither_better_nor_worse(
    model_dir: Path, tmp_path: Path
) -> None:
    neutral = [pair(f"the red house {tail}", f"the small house {tail}") for tail in TAILS]
    config = {"pairs": PAIRS, "control_pairs": neutral, "fraction": 0.5, **QUIET}

    job = run_job(model_dir, tmp_path, config)

    rows = [row for row in job.result.summary if row.group == "control pairs"]
    assert any(row.delta for row in rows)
    assert {row.improved for row in rows} == {None}
    ratio = job.report["controls"]["demographic_to_control_ratio"]
    before = {row.group: row.before for row in job.result.summary if "parity" in row.metric}
    assert ratio["before"] == pytest.approx(
        before["gender, selection pairs"] / before["control pairs"]
    )


def test_held_out_and_control_pairs_do_not_choose_neurons(model_dir: Path, tmp_path: Path) -> None:
    config = {"pairs": PAIRS, "fraction": 0.2, "bias_weight": 1.0, **QUIET}
    others = [{**p, "category": "gender"} for p in AGES]
    neutral = [{**p, "category": "gender"} for p in NEUTRAL]

    alone = run_job(model_dir, tmp_path / "alone", config)
    beside = run_job(
        model_dir,
        tmp_path / "beside",
        {**config, "holdout_pairs": others, "control_pairs": neutral},
    )

    assert beside.report["removed"] == alone.report["removed"]


def test_hybrid_importance_reads_its_calibration_texts(model_dir: Path, tmp_path: Path) -> None:
    config = {"pairs": PAIRS, "fraction": 0.1, "importance": "hybrid", "bias_weight": 0.2, **QUIET}

    removed = [
        run_job(model_dir, tmp_path / str(n), {**config, "calibration_texts": texts}).report[
            "removed"
        ]
        for n, texts in enumerate((["the old house"], ["he saw she saw he saw she"]))
    ]

    assert removed[0] != removed[1]


def test_an_interrupted_job_does_not_repeat_finished_controls(
    model_dir: Path, tmp_path: Path
) -> None:
    config = {"pairs": PAIRS, "fraction": 0.1, **FEW_CONTROLS}
    whole = run_job(model_dir, tmp_path / "whole", config)
    first_draw = next(n for n, step in enumerate(whole.context.steps) if "random_1" in step[3])
    stopped = job_context(model_dir, tmp_path / "part", config)
    stopped.stop_after_polls = polls_before(whole, first_draw)
    with pytest.raises(Stopped):
        run_locally(Engine(), stopped)
    shutil.rmtree(stopped.out_dir)

    resumed = run_job(model_dir, tmp_path / "part", config)

    messages = [message for phase, _, _, message in resumed.context.steps if phase == "debiasing"]
    assert not any("importance_only" in message or "random_0" in message for message in messages)
    assert any("random_1" in message for message in messages)
    assert resumed.report == whole.report


def polls_before(job: Job, step: int) -> int:
    """Count the polls of a job up to a step by running it again with a recording context."""
    config = job.context.config
    context = type(job.context)(
        config=config,
        model_dir=job.context.model_dir,
        out_dir=job.context.out_dir.parent / "again" / "out",
        scratch_dir=job.context.out_dir.parent / "again" / "scratch",
        provenance=job.context.provenance,
    )
    polls: list[int] = []
    record = context.steps

    class Steps(list):  # type: ignore[type-arg]
        def append(self, item: Any) -> None:
            polls.append(context.polls)
            record.append(item)

    context.steps = Steps()
    run_locally(Engine(), context)
    return polls[step]


def test_a_new_attempt_writes_the_checkpoint_again_for_the_later_phases(
    model_dir: Path, tmp_path: Path
) -> None:
    config = {"pairs": PAIRS, "fraction": 0.1, **QUIET}
    job = run_job(model_dir, tmp_path, config)
    weights = (job.checkpoint / "model.safetensors").read_bytes()
    shutil.rmtree(job.context.out_dir)

    again = run_job(model_dir, tmp_path, config)

    assert (again.checkpoint / "model.safetensors").read_bytes() == weights


def test_a_checkpoint_that_does_not_load_fails_the_job_and_is_removed(
    model_dir: Path, tmp_path: Path
) -> None:
    context = job_context(model_dir, tmp_path, {"pairs": PAIRS, "fraction": 0.1, **QUIET})
    run_locally(Engine(), context)
    config_file = context.out_dir / "checkpoint" / "config.json"
    edited = json.loads(config_file.read_text())
    config_file.write_text(json.dumps({**edited, "intermediate_size": 17}))
    state = {"removed": {str(n): [] for n in range(LAYERS)}}

    with pytest.raises(JobFailure) as failed:
        Engine().evaluate_after(context, PhaseOutput(), PhaseOutput(state=state))

    assert failed.value.code is JobErrorCode.RELOAD_FAILED
    assert not (context.out_dir / "checkpoint").exists()


def test_checkpoint_carries_its_provenance_and_a_card(model_dir: Path, tmp_path: Path) -> None:
    job = run_job(model_dir, tmp_path, {"pairs": PAIRS, "fraction": 0.1, **QUIET})

    side_file = json.loads((job.checkpoint / "debias_report.json").read_text())
    assert side_file["removed"] == job.report["removed"]
    hashes = {file["path"]: file["sha256"] for file in side_file["model_files"]}
    assert set(hashes) >= {"config.json", "model.safetensors"}
    assert all(len(digest) == 64 for digest in hashes.values())
    assert (job.checkpoint / "README.md").read_text().startswith("---\n")


def test_pictures_come_with_their_data(shared_data: Path, tmp_path: Path) -> None:
    stories = shared_data / "models" / "stories260k-llama"
    config = {**QUIET, "pairs": [PAIR_0], "fraction": 0.05, "plots": ["mean_diff", "pca"],
              "plot_layers": [1]}  # fmt: skip

    job = run_job(stories, tmp_path, config)

    plots = job.context.out_dir / "plots"
    names = {path.stem for path in plots.glob("*.png")}
    assert names == {path.stem for path in plots.glob("*.json")}
    assert names >= {"mean_diff_mlp_output", "mean_diff_attention_output", "pca_mlp_output_layer_1"}
    layers = job.report["layers"]["selection"]["before"]["mlp_output"]["mean"]
    bars = json.loads((plots / "mean_diff_mlp_output.json").read_text())
    np.testing.assert_allclose(bars["before"], layers)


def test_texts_of_a_batch_equal_texts_of_single_prompts(shared_data: Path, tmp_path: Path) -> None:
    stories = shared_data / "models" / "stories260k-llama"
    prompts = ["The boy was", "The girl was", "Tim had a", "Once upon a time", "She saw a big dog"]
    config = {"pairs": [PAIR_0], "fraction": 0.05, "generation": {"max_length": 30}}
    context = job_context(stories, tmp_path, config)
    subject = load_subject(context, stories, read_plan(context))
    encoded = [tuple(subject.tokenizer(text)["input_ids"]) for text in prompts]
    assert len({len(ids) for ids in encoded}) < len(encoded)

    together = continue_prompts(subject, encoded, context.config.generation, seed=0)

    for ids in encoded:
        alone = continue_prompts(subject, [ids], context.config.generation, seed=0)
        assert alone[ids] == together[ids]


def test_an_edit_that_takes_a_model_under_the_limit_of_float32_is_measured_as_its_base(
    model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "_MAX_FLOAT32_CPU_BYTES", load.float32_bytes(model_dir) - 1)

    job = run_job(model_dir, tmp_path, {**QUIET, "pairs": PAIRS, "neurons_per_layer": 4})

    assert load.float32_bytes(job.checkpoint) < load.float32_bytes(model_dir)
    run = job.report["run"]
    assert (run["dtype_before"], run["dtype_after"]) == ("bfloat16", "bfloat16")


def test_control_pairs_without_any_difference_have_no_ratio(
    model_dir: Path, tmp_path: Path
) -> None:
    # A word at the end has no counterpart, and nothing before it can differ.
    neutral = [pair("the house was red", "the house was red and")]

    job = run_job(
        model_dir, tmp_path, {**QUIET, "pairs": PAIRS, "control_pairs": neutral, "fraction": 0.1}
    )

    assert job.report["controls"]["demographic_to_control_ratio"] == {"before": None, "after": None}
    assert "Demographic to neutral" not in (job.context.out_dir / "report.html").read_text()
