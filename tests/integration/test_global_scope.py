"""Whole jobs with scope `global`: the stored model, its width, and its controls."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests.fairness_pruning_jobs import (
    PAIR_0,
    QUIET,
    Job,
    job_context,
    pair,
    run_job,
    word_model,
)
from workers.methods.fairness_pruning.choose import choose_neurons
from workers.methods.fairness_pruning.measure_base import measure_base
from workers.methods.fairness_pruning.measuring import subject
from workers.methods.fairness_pruning.measuring.batches import make_batches
from workers.methods.fairness_pruning.measuring.subject import read_plan, read_shape
from workers.methods.fairness_pruning.selecting.controls import BEYOND_CHANCE
from workers.runtime.context import PhaseOutput

STORIES_NEURONS, STORIES_LAYERS = 172, 5
PAIRS = [
    {**PAIR_0, "category": "gender"},
    pair("He was a nurse and loved to help", "She was a nurse and loved to help",
         category="gender"),
    pair("The white man felt", "The black man felt", category="race"),
    pair("The old man saw a dog", "The young man saw a dog", category="age"),
]  # fmt: skip
GLOBAL: Mapping[str, Any] = {"pairs": PAIRS, "scope": "global", "fraction": 0.05}


@pytest.fixture(scope="module")
def stories(shared_data: Path) -> Path:
    return shared_data / "models" / "stories260k-llama"


@pytest.fixture(scope="module")
def pruned(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> Job:
    controls = {"controls": {"random_seeds": 3}}
    return run_job(stories, tmp_path_factory.mktemp("pruned"), {**QUIET, **GLOBAL, **controls})


@pytest.fixture(scope="module")
def zeroed(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> Job:
    return run_job(stories, tmp_path_factory.mktemp("zeroed"), {**QUIET, **GLOBAL, "mode": "zero"})


def logits(folder: Path) -> torch.Tensor:
    model, loading = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(loading.values())
    with torch.no_grad():
        found: torch.Tensor = model.eval()(torch.arange(1, 60)[None]).logits
    return found


def removed_counts(job: Job) -> dict[str, int]:
    return {layer: len(neurons) for layer, neurons in job.report["removed"].items()}


def test_padded_model_equals_the_zeroed_one(pruned: Job, zeroed: Job) -> None:
    assert pruned.report["removed"] == zeroed.report["removed"]
    found, expected = logits(pruned.checkpoint), logits(zeroed.checkpoint)
    # Products with zeros change no sum, but kernels add in another order at another width.
    assert float((found - expected).abs().max()) <= 1e-4 * float(expected.abs().max())


def test_stored_model_equals_the_base_with_its_neurons_masked(zeroed: Job, stories: Path) -> None:
    masked = AutoModelForCausalLM.from_pretrained(stories).eval()
    with torch.no_grad():
        for layer, neurons in zeroed.report["removed"].items():
            masked.model.layers[int(layer)].mlp.down_proj.weight[:, neurons] = 0
        expected = masked(torch.arange(1, 60)[None]).logits
    assert float((logits(zeroed.checkpoint) - expected).abs().max()) <= 1e-4 * float(
        expected.abs().max()
    )


def test_layer_that_loses_least_sets_the_width_and_the_others_are_padded(pruned: Job) -> None:
    counts = removed_counts(pruned)

    assert len(set(counts.values())) > 1
    sizes = pruned.report["intermediate_size"]
    assert sizes["after"] == STORIES_NEURONS - min(counts.values())
    assert pruned.report["padding_neurons"] == {
        layer: count - min(counts.values())
        for layer, count in counts.items()
        if count > min(counts.values())
    }


def test_report_states_requested_and_effective_fraction(pruned: Job) -> None:
    total = STORIES_LAYERS * STORIES_NEURONS

    assert sum(removed_counts(pruned).values()) == 43  # floor(0.05 * 860)
    assert pruned.report["fraction"] == {
        "requested": pytest.approx(0.05),
        "effective": pytest.approx(43 / total),
    }


def test_every_control_removes_as_many_from_each_layer(pruned: Job) -> None:
    counts = removed_counts(pruned)
    controls = pruned.report["controls"]["removed"]

    assert set(controls) == {"importance_only", "random_0", "random_1", "random_2"}
    for removed in controls.values():
        assert {layer: len(neurons) for layer, neurons in removed.items()} == counts


def test_arithmetic_and_behaviour_are_the_same_padded_and_zeroed(pruned: Job, zeroed: Job) -> None:
    for first, second in zip(pruned.report["pairs"], zeroed.report["pairs"], strict=True):
        for part in ("mechanical", "behavioural"):
            values = [entry["bias_metric_parity"][part] for entry in (first, second)]
            assert values[0] == pytest.approx(values[1], abs=1e-6)


def test_width_rounded_up_holds_zero_neurons_in_every_layer(tmp_path: Path) -> None:
    base_dir = word_model(tmp_path / "model")
    pairs = [pair("the man was very old", "the woman was very old")]
    amount = {"pairs": pairs, "scope": "global", "top_k": 60, "fraction": None}
    rounding = {"round_to_multiple": 8, "round_direction": "up"}

    job = run_job(base_dir, tmp_path / "job", {**QUIET, **amount, **rounding})

    counts, after = removed_counts(job), job.report["intermediate_size"]["after"]
    base = job.report["intermediate_size"]["before"]
    fewest = min(counts.values())
    assert after == -(-(base - fewest) // 8) * 8 < base
    assert after > base - fewest
    weights = load_file(job.checkpoint / "model.safetensors")
    for layer, count in counts.items():
        down = weights[f"model.layers.{layer}.mlp.down_proj.weight"]
        assert down.shape[1] == after
        assert not down[:, base - count :].any()
        assert down[:, : base - count].any(dim=0).all()
    zeroed = run_job(base_dir, tmp_path / "zeroed", {**QUIET, **amount, "mode": "zero"})
    expected = logits_of_words(zeroed.checkpoint)
    found = logits_of_words(job.checkpoint)
    assert float((found - expected).abs().max()) <= 1e-4 * float(expected.abs().max())


def test_report_says_what_the_width_found_by_the_ranking_is_no_longer_fit_for(
    tmp_path: Path,
) -> None:
    base_dir = word_model(tmp_path / "model", neurons=64)
    pairs = [pair("the man was very old", "the woman was very old")]
    config = {**QUIET, "pairs": pairs, "scope": "global", "top_k": 60}

    job = run_job(base_dir, tmp_path / "job", config)

    after = job.report["intermediate_size"]["after"]
    assert 32 < after < 64
    assert job.report["lost_multiples"][-2:] == [32, 64]
    (advice,) = [text for text in job.report["warnings"] if "GGUF" in text]
    assert f"store {after} of 64 neurons" in advice
    # Filling up to 32 or 64 would bring the base's width back, so neither is offered.
    assert job.report["roundings"] == []


def test_report_of_the_same_number_a_layer_offers_the_roundings_that_remain(
    tmp_path: Path,
) -> None:
    base_dir = word_model(tmp_path / "model", neurons=64)
    pairs = [pair("the man was very old", "the woman was very old")]

    job = run_job(base_dir, tmp_path / "job", {**QUIET, "pairs": pairs, "fraction": 0.1})

    assert job.report["intermediate_size"]["after"] == 58
    assert job.report["roundings"] == [
        {"multiple": 32, "width": 32, "effective_fraction": 0.5},
    ]


def logits_of_words(folder: Path) -> torch.Tensor:
    with torch.no_grad():
        model = AutoModelForCausalLM.from_pretrained(folder).eval()
        found: torch.Tensor = model(torch.arange(1, 31)[None]).logits
    return found


Neurons = dict[int, list[int]]
VARIANTS: Mapping[str, list[dict[str, Any]]] = {
    "plain": PAIRS,
    "swapped": [
        {**entry, "prompt_1": entry["prompt_2"], "prompt_2": entry["prompt_1"]} for entry in PAIRS
    ],
    "reordered": PAIRS[::-1],
    "doubled": PAIRS * 2,
    "one by one": PAIRS,
    **{
        name: [entry for entry in PAIRS if entry["category"] == name]
        for name in ("gender", "race", "age")
    },
}


@pytest.fixture(scope="module")
def select(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Neurons]:
    """Select from one measurement of each variant of the pairs, with any options."""
    measured: dict[str, PhaseOutput] = {}

    def select_once(variant: str, **fields: Any) -> Neurons:
        root = tmp_path_factory.mktemp("select")
        ctx = job_context(stories, root, {**QUIET, "pairs": VARIANTS[variant], **fields})
        if variant not in measured:
            with pytest.MonkeyPatch.context() as patched:
                if variant == "one by one":
                    patched.setattr(subject, "make_batches", partial(make_batches, max_tokens=1))
                measured[variant] = measure_base(ctx)
        plan, shape = read_plan(ctx), read_shape(stories)
        return choose_neurons(ctx, measured[variant], plan, shape).selection.removed

    return select_once


def places(removed: Neurons) -> set[tuple[int, int]]:
    return {(layer, neuron) for layer, gone in removed.items() for neuron in gone}


@pytest.mark.parametrize("rule", ["intersection", "union"])
def test_rule_over_categories_combines_the_top_sets_of_single_categories(
    select: Callable[..., Neurons], rule: str
) -> None:
    amount = {"scope": "global", "top_k": 200, "fraction": None}
    sets = [places(select(name, **amount)) for name in ("gender", "race", "age")]
    expected = set.intersection(*sets) if rule == "intersection" else set.union(*sets)

    found = places(select("plain", **amount, category_rule=rule))

    assert found
    assert found == expected


@pytest.mark.parametrize("variant", ["swapped", "reordered", "doubled", "one by one"])
@pytest.mark.parametrize(
    "fields",
    [
        {"scope": "per_layer", "fraction": 0.05},
        {"scope": "global", "fraction": 0.05},
        {"scope": "global", "fraction": 0.25, "category_rule": "intersection"},
        {"scope": "global", "fraction": 0.05, "category_rule": "union"},
    ],
    ids=["per_layer", "pooled", "intersection", "union"],
)
def test_order_repetition_and_batches_of_pairs_do_not_change_the_selection(
    select: Callable[..., Neurons], variant: str, fields: dict[str, Any]
) -> None:
    expected = select("plain", **fields)

    assert places(expected)
    assert select(variant, **fields) == expected


def test_nothing_in_common_leaves_the_model_as_it_is(stories: Path, tmp_path: Path) -> None:
    config = {**QUIET, **GLOBAL, "fraction": None, "top_k": 1, "category_rule": "intersection"}

    job = run_job(stories, tmp_path, config)

    assert not any(job.report["removed"].values())
    assert any("top set of every category" in warning for warning in job.report["warnings"])
    base, edited = stories / "model.safetensors", job.checkpoint / "model.safetensors"
    assert base.read_bytes() == edited.read_bytes()


WOMAN, PLANTED = 6, (1, 7)
TAILS = ("was very old", "is happy", "said it", "saw the house", "was in the house", "and a cook")


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a model in which one neuron of layer 1 fires for `woman` alone, and loudly."""
    folder = word_model(tmp_path_factory.mktemp("planted") / "model")
    model = AutoModelForCausalLM.from_pretrained(folder)
    layer, neuron = PLANTED
    with torch.no_grad():
        # Without attention, and without an MLP before it, layer 1 sees its token's embedding.
        for block in model.model.layers[:2]:
            block.self_attn.o_proj.weight.zero_()
        model.model.layers[0].mlp.down_proj.weight.zero_()
        table = torch.nn.functional.normalize(model.model.embed_tokens.weight, dim=1)
        others = torch.cat([table[3:WOMAN], table[WOMAN + 1 : 31]])
        shared = torch.linalg.lstsq(others.T, table[WOMAN][:, None]).solution[:, 0] @ others
        direction = torch.nn.functional.normalize(table[WOMAN] - shared, dim=0)
        mlp = model.model.layers[layer].mlp
        mlp.gate_proj.weight[neuron] = 6 * direction
        mlp.up_proj.weight[neuron] = 6 * direction
        mlp.down_proj.weight[:, neuron] = torch.randn(32, generator=generator()) * 2
    model.save_pretrained(folder)
    return folder


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_a_planted_neuron_is_the_first_of_all_layers_and_beats_the_controls(
    planted: Path, tmp_path: Path
) -> None:
    config = {
        "pairs": [pair(f"the man {tail}", f"the woman {tail}") for tail in TAILS[:3]],
        "holdout_pairs": [pair(f"a man {tail}", f"a woman {tail}") for tail in TAILS],
        "scope": "global",
        "top_k": 1,
        "mode": "zero",
        "controls": {"random_seeds": 3},
        "plots": [],
        "generation": {"max_pairs": 0},
    }

    # With this seed no random draw happens to hit the one neuron that matters.
    job = run_job(planted, tmp_path, config, seed=1)

    assert job.report["removed"] == {"0": [], "1": [7], "2": []}
    assert job.report["verdict"]["wording"] == BEYOND_CHANCE


def test_controls_in_memory_show_what_a_stored_global_edit_would(
    stories: Path, pruned: Job, tmp_path: Path
) -> None:
    drawn = {
        layer: neurons
        for layer, neurons in pruned.report["controls"]["removed"]["random_0"].items()
        if neurons
    }

    stored = run_job(
        stories, tmp_path, {**QUIET, "pairs": PAIRS, "neuron_indices": drawn, "fraction": None}
    )

    masked = pruned.report["controls"]["groups"]["selection"]["after"]["random_0"]
    real = stored.report["controls"]["groups"]["selection"]["after"]["selection"]
    names = sorted(masked)
    # fp32 sums over other widths: the seventh digit of values around 0.1.
    np.testing.assert_allclose([masked[n] for n in names], [real[n] for n in names], atol=1e-6)


def test_page_names_scope_rule_and_the_reason_for_another_share(
    stories: Path, tmp_path: Path
) -> None:
    job = run_job(stories, tmp_path, {**QUIET, **GLOBAL, "category_rule": "union"})

    page = (job.context.out_dir / "report.html").read_text(encoding="utf-8")
    taken = sum(removed_counts(job).values())
    share = 100 * taken / (STORIES_LAYERS * STORIES_NEURONS)
    assert "highest bias scores wherever they are (global)</dd>" in page
    assert "<dd>in the top set of any category (union)</dd>" in page
    assert (
        "<dt>Why another fraction</dt><dd>The rule union takes what is in the top set of any "
        f"category: this takes {share:.4g} % of all neurons, not the 5 % asked for.</dd>"
    ) in page
