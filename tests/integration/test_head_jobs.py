"""Whole jobs that take out attention heads, alone or beside neurons."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from app.catalog.methods.fairness_pruning import METHOD
from tests.fairness_pruning_jobs import QUIET, Job, pair, run_job, word_model
from tests.tiny_models import HIDDEN, LAYERS
from workers.methods.fairness_pruning.selecting.controls import BEYOND_CHANCE
from workers.models.tensor_files import open_checkpoint

TAILS = ("was very old", "is happy", "said it", "saw the house", "was in the house", "and a cook")
PAIRS = [pair(f"the man {tail}", f"the woman {tail}", category="gender") for tail in TAILS]
HELD_OUT = [pair(f"a man {tail}", f"a woman {tail}") for tail in TAILS]
FEW_CONTROLS = {"controls": {"random_seeds": 3}, "plots": [], "generation": {"max_pairs": 0}}
ONLY_HEADS = {"pairs": PAIRS, "fraction": 0.0}
HEAD_DIM, HEADS, GROUPS = 8, 4, 2


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four heads on two key-value heads, three layers."""
    return word_model(tmp_path_factory.mktemp("model") / "llama")


def masked_logits(folder: Path, heads: dict[str, list[int]], neurons: Any = None) -> torch.Tensor:
    """The base model with columns of its two output matrices cleared by hand."""
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        for layer, indices in heads.items():
            for head in indices:
                columns = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
                model.model.layers[int(layer)].self_attn.o_proj.weight[:, columns] = 0
        for layer, indices in (neurons or {}).items():
            model.model.layers[int(layer)].mlp.down_proj.weight[:, indices] = 0
        logits: torch.Tensor = model(torch.arange(1, 31)[None]).logits
    return logits


def logits(folder: Path) -> torch.Tensor:
    return masked_logits(folder, {})


def assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    # Products in another order: the bound of the method for an edit that must change nothing.
    assert float((found - expected).abs().max()) <= 1e-4 * float(expected.abs().max())


def test_a_job_can_clear_heads_alone(model_dir: Path, tmp_path: Path) -> None:
    config = {**QUIET, **ONLY_HEADS, "attention_heads": {"heads_per_layer": 1}}

    job = run_job(model_dir, tmp_path, config)

    entry = job.report["attention_heads"]
    assert entry["extension"] is True
    assert {layer: len(heads) for layer, heads in entry["removed"].items()} == {
        "0": 1,
        "1": 1,
        "2": 1,
    }
    assert not any(job.report["removed"].values())
    assert_close(logits(job.checkpoint), masked_logits(model_dir, entry["removed"]))
    base = load_file(model_dir / "model.safetensors")
    after = load_file(job.checkpoint / "model.safetensors")
    changed = {name for name in base if not torch.equal(base[name], after[name])}
    assert changed == {f"model.layers.{n}.self_attn.o_proj.weight" for n in range(LAYERS)}
    assert (job.checkpoint / "config.json").read_bytes() == (model_dir / "config.json").read_bytes()
    assert job.report["parameters"]["before"] == job.report["parameters"]["after"]


def test_a_job_can_remove_groups_of_heads_beside_neurons(model_dir: Path, tmp_path: Path) -> None:
    heads = {"heads_per_layer": 2, "mode": "remove"}
    config = {**QUIET, "pairs": PAIRS, "neurons_per_layer": 4, "attention_heads": heads}

    job = run_job(model_dir, tmp_path, config)

    entry = job.report["attention_heads"]
    expected = masked_logits(model_dir, entry["removed"], job.report["removed"])
    assert_close(logits(job.checkpoint), expected)
    written = json.loads((job.checkpoint / "config.json").read_text())
    base = json.loads((model_dir / "config.json").read_text())
    fields = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": HEAD_DIM}
    assert written == {**base, **fields, "intermediate_size": base["intermediate_size"] - 4}
    assert entry["query_heads"] == {"before": HEADS, "after": 2}
    assert entry["key_value_heads"] == {"before": GROUPS, "after": 1}
    # Two query heads and a key-value head: rows of q, k and v, and columns of o.
    of_heads = (2 + 1 + 1 + 2) * HEAD_DIM * HIDDEN
    of_neurons = 4 * 3 * HIDDEN
    numbers = job.report["parameters"]
    assert numbers["before"] - numbers["after"] == LAYERS * (of_heads + of_neurons)


def test_cleared_and_removed_groups_measure_the_same(model_dir: Path, tmp_path: Path) -> None:
    indices = {str(layer): [2, 3] for layer in range(LAYERS)}
    results = []
    for mode in ("zero", "remove"):
        heads = {"head_indices": indices, "mode": mode}
        config = {**QUIET, **ONLY_HEADS, "attention_heads": heads}
        results.append(run_job(model_dir, tmp_path / mode, config).report)

    zero, removed = results

    for one, other in zip(zero["pairs"], removed["pairs"], strict=True):
        for metric in ("bias_metric_parity", "bias_metric_attention", "bias_metric_relative"):
            # fp32 sums over other numbers of values.
            assert one[metric]["after"] == pytest.approx(other[metric]["after"], rel=1e-5)
            assert one[metric]["after"] != one[metric]["before"]
    assert zero["parameters"]["after"] > removed["parameters"]["after"]


def test_heads_change_no_choice_of_neurons(model_dir: Path, tmp_path: Path) -> None:
    config = {"pairs": PAIRS, "neurons_per_layer": 4, **FEW_CONTROLS}

    alone = run_job(model_dir, tmp_path / "alone", config)
    beside = run_job(
        model_dir, tmp_path / "beside", {**config, "attention_heads": {"heads_per_layer": 1}}
    )

    assert "attention_heads" not in alone.report
    assert beside.report["removed"] == alone.report["removed"]
    assert beside.report["controls"]["removed"] == alone.report["controls"]["removed"]


@pytest.mark.parametrize(
    "heads", [{"heads_per_layer": 1}, {"heads_per_layer": 2, "mode": "remove"}]
)
def test_a_control_in_memory_shows_what_the_stored_edit_would(
    model_dir: Path, tmp_path: Path, heads: dict[str, Any]
) -> None:
    config = {"pairs": PAIRS, "neurons_per_layer": 3, **FEW_CONTROLS, "attention_heads": heads}
    job = run_job(model_dir, tmp_path / "a", config)
    drawn = job.report["controls"]["removed"]["random_0"]
    drawn_heads = job.report["attention_heads"]["controls"]["random_0"]
    named = {"head_indices": drawn_heads, "mode": heads.get("mode", "zero")}

    stored = run_job(
        model_dir,
        tmp_path / "b",
        {"pairs": PAIRS, **QUIET, "neuron_indices": drawn, "attention_heads": named},
    )

    masked = job.report["controls"]["groups"]["selection"]["after"]["random_0"]
    real = stored.report["controls"]["groups"]["selection"]["after"]["selection"]
    assert set(masked) == set(real)
    for name, value in masked.items():
        assert value == pytest.approx(real[name], abs=1e-6), name
    assert job.report["language"]["loss"]["random_0"] == pytest.approx(
        stored.report["language"]["loss"]["after"], rel=1e-5
    )


def test_controls_take_out_as_many_heads(model_dir: Path, tmp_path: Path) -> None:
    config = {**ONLY_HEADS, **FEW_CONTROLS, "attention_heads": {"heads_per_layer": 1}}

    job = run_job(model_dir, tmp_path, config)

    controls = job.report["attention_heads"]["controls"]
    assert set(controls) == {"importance_only", "random_0", "random_1", "random_2"}
    assert set(job.report["controls"]["removed"]) == set(controls)
    for removed in controls.values():
        assert [len(heads) for heads in removed.values()] == [1] * LAYERS
    importance = np.array(job.report["attention_heads"]["importance"])
    assert controls["importance_only"] == {
        str(layer): [int(row.argmin())] for layer, row in enumerate(importance)
    }


def test_held_out_and_control_pairs_do_not_choose_heads(model_dir: Path, tmp_path: Path) -> None:
    heads = {"heads_per_layer": 1, "bias_weight": 1.0}
    config = {**QUIET, **ONLY_HEADS, "attention_heads": heads}
    neutral = [pair(f"the red house {tail}", f"the small house {tail}") for tail in TAILS]

    alone = run_job(model_dir, tmp_path / "alone", config)
    others = {"holdout_pairs": HELD_OUT, "control_pairs": neutral}
    beside = run_job(model_dir, tmp_path / "beside", {**config, **others})

    # Other batches, so sums of fp32 forwards may differ in the last digits.
    np.testing.assert_allclose(
        beside.report["attention_heads"]["bias"], alone.report["attention_heads"]["bias"], rtol=1e-5
    )
    assert beside.report["attention_heads"]["removed"] == alone.report["attention_heads"]["removed"]


WOMAN = 6
PLANTED = 2


def planted_model(folder: Path) -> Path:
    """Build a model in which head 2 of layer 0 copies whether `woman` was among its tokens.

    It attends to all earlier tokens alike, and its values are the part of an embedding that only
    `woman` has. Its key-value head is its own.
    """
    own = {"num_key_value_heads": HEADS}
    word_model(folder, settings=own)
    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        layer = model.model.layers[0]
        table = torch.nn.functional.normalize(model.model.embed_tokens.weight, dim=1)
        used = torch.cat([table[3:WOMAN], table[WOMAN + 1 : 33]])
        woman = table[WOMAN]
        direction = woman - torch.linalg.lstsq(used.T, woman[:, None]).solution[:, 0] @ used
        direction = torch.nn.functional.normalize(direction, dim=0)
        block = slice(PLANTED * HEAD_DIM, (PLANTED + 1) * HEAD_DIM)
        layer.self_attn.q_proj.weight[block] = 0
        layer.self_attn.v_proj.weight[block] = 4 * direction
        layer.self_attn.o_proj.weight[:, block] *= 5
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted_model(tmp_path_factory.mktemp("planted") / "model")


def planted_job(planted: Path, root: Path, **options: Any) -> Job:
    heads = {"heads_per_layer": 1, "bias_weight": 1.0}
    config = {**ONLY_HEADS, "holdout_pairs": HELD_OUT, "attention_heads": heads, **FEW_CONTROLS}
    # With this seed no random draw happens to hit the one head that matters.
    return run_job(planted, root, {**config, **options}, seed=1)


def test_a_planted_head_is_ranked_first_by_reaction(planted: Path, tmp_path: Path) -> None:
    job = planted_job(planted, tmp_path, **QUIET)

    entry = job.report["attention_heads"]
    assert entry["removed"]["0"] == [PLANTED]
    reaction = np.array(entry["bias"][0])
    assert reaction[PLANTED] > 2 * np.delete(reaction, PLANTED).max()
    assert entry["scores"][0][PLANTED] == pytest.approx(1.0, abs=1e-6)


def test_a_planted_head_is_kept_where_importance_alone_counts(
    planted: Path, tmp_path: Path
) -> None:
    heads = {"heads_per_layer": HEADS - 1, "bias_weight": 0.0}

    job = planted_job(planted, tmp_path, **QUIET, attention_heads=heads)

    assert PLANTED not in job.report["attention_heads"]["removed"]["0"]


def test_taking_out_the_planted_head_beats_the_controls(planted: Path, tmp_path: Path) -> None:
    job = planted_job(planted, tmp_path)

    drawn = job.report["attention_heads"]["controls"]
    assert all(drawn[f"random_{n}"]["0"] != [PLANTED] for n in range(3))
    assert job.report["verdict"]["wording"] == BEYOND_CHANCE


def test_page_on_heads_alone_says_of_heads_what_is_said_of_neurons(
    planted: Path, tmp_path: Path
) -> None:
    job = planted_job(planted, tmp_path)

    page = (job.context.out_dir / "report.html").read_text(encoding="utf-8")
    told = page[page.index('<section id="in-short">') : page.index('<section id="changed">')]
    assert "this choice of attention heads reduced the difference more" in told
    assert "neuron" not in told
    assert "A control takes out as many attention heads, chosen in another way" in page


def test_a_new_attempt_writes_the_same_checkpoint_again(model_dir: Path, tmp_path: Path) -> None:
    heads = {"heads_per_layer": 2, "mode": "remove"}
    config = {**QUIET, **ONLY_HEADS, "attention_heads": heads}
    job = run_job(model_dir, tmp_path, config)
    weights = (job.checkpoint / "model.safetensors").read_bytes()
    shutil.rmtree(job.context.out_dir)

    again = run_job(model_dir, tmp_path, config)

    assert (again.checkpoint / "model.safetensors").read_bytes() == weights


def test_a_model_with_fewer_heads_can_be_edited_again(model_dir: Path, tmp_path: Path) -> None:
    heads = {"fraction": 0.5, "mode": "remove"}
    first = run_job(
        model_dir, tmp_path / "first", {**QUIET, **ONLY_HEADS, "attention_heads": heads}
    )
    config = {"pairs": PAIRS, "neurons_per_layer": 2, **QUIET}
    facts = open_checkpoint(first.checkpoint).facts()
    checked = METHOD.check(METHOD.config.model_validate({**config, "neuron_indices": None}), facts)
    assert [finding.code for finding in checked.incompatible] == ["tokenizer_missing"]

    second = run_job(first.checkpoint, tmp_path / "second", config)

    assert_close(
        logits(second.checkpoint), masked_logits(first.checkpoint, {}, second.report["removed"])
    )


def test_grouped_key_value_head_of_each_head_is_told(model_dir: Path, tmp_path: Path) -> None:
    heads = {"head_indices": {"0": [0, 3], "2": [1]}}

    job = run_job(model_dir, tmp_path, {**QUIET, **ONLY_HEADS, "attention_heads": heads})

    told = [
        (entry["layer"], entry["head"], entry["key_value_head"], entry["score"])
        for entry in job.report["attention_heads"]["removed_heads"]
    ]
    assert told == [(0, 0, 0, None), (0, 3, 1, None), (2, 1, 0, None)]


def test_report_page_and_card_call_it_an_extension(model_dir: Path, tmp_path: Path) -> None:
    config = {**ONLY_HEADS, **FEW_CONTROLS, "attention_heads": {"heads_per_layer": 3}}

    job = run_job(model_dir, tmp_path, config)

    page = (job.context.out_dir / "report.html").read_text()
    assert "Attention heads (extension)" in page
    assert "9 attention heads in 3 of 3 layers, mode zero" in page
    card = (job.checkpoint / "README.md").read_text()
    assert "9 attention heads in 3 of 3 layers, mode zero" in card
    side_file = json.loads((job.checkpoint / "debias_report.json").read_text())
    assert side_file["attention_heads"] == job.report["attention_heads"]
    assert any("More than half of the attention heads" in text for text in job.report["warnings"])
    assert "Nothing was changed" not in page
    facts = re.sub(r"<[^>]+>|\s+", " ", page)
    assert re.search(r"Done to the neurons +nothing ", facts)
    assert re.search(r"Done to attention heads \(extension\) +set to zero ", facts)
    assert re.search(r"Attention heads that a layer stores +4, as before ", facts)
    for layer, heads in job.report["attention_heads"]["removed"].items():
        assert f"layer {layer}: {', '.join(map(str, heads))}" in facts


def test_page_on_heads_alone_has_no_settings_of_neurons(planted: Path, tmp_path: Path) -> None:
    job = planted_job(planted, tmp_path)

    page = (job.context.out_dir / "report.html").read_text(encoding="utf-8")
    facts = page[page.index('<section id="changed">') : page.index('<section id="findings">')]
    for label in ("Choice of neurons", "Importance", "Reaction", "Fraction changed"):
        assert f"<dt>{label}</dt>" not in facts
    assert "The neurons that go were chosen" not in page
    assert "This job took out attention heads and no neurons." in page
