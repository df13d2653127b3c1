"""Heads of real (tiny, random) models of every family: read, masked, cleared and removed."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from app.catalog.fairness_pruning.config import FairnessPruningConfig
from app.domain.architectures import find_layout, layout_model_types
from app.domain.attention import (
    Attention,
    check_attention,
    find_attention,
    kept_heads_obstacle,
    read_attention,
    removal_obstacle,
)
from app.domain.errors import JobFailure
from app.domain.native_tensors import check_native_tensors
from tests.tiny_models import LAYERS, SETTINGS, save_tiny_model
from workers.methods.fairness_pruning.editing.edit import apply_edit
from workers.methods.fairness_pruning.heads.edits import HeadMode, HeadRemoval, plan_head_edits
from workers.methods.fairness_pruning.heads.importance import head_importance
from workers.methods.fairness_pruning.heads.observe import observed_heads, scaled_heads
from workers.methods.fairness_pruning.heads.scores import HeadScores, new_head_scores
from workers.methods.fairness_pruning.measuring.alignment import align
from workers.methods.fairness_pruning.measuring.batches import PairBatch, TokenPair, make_batches
from workers.methods.fairness_pruning.measuring.bias_scores import ScoreRule
from workers.methods.fairness_pruning.measuring.capture import Decoder
from workers.models.tensor_files import open_checkpoint

REMOVABLE = (
    "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "gemma3", "smollm3",
    "olmo", "granite", "cohere", "cohere2", "glm", "glm4", "phi", "starcoder2", "nemotron",
)  # fmt: skip
FIXED = tuple(name for name in layout_model_types() if name not in REMOVABLE)
IDS = torch.arange(1, 31)[None]
# Products in another order: the bound of the method for an edit that must change nothing.
TOLERANCE = 1e-4


def attention_of(folder: Path) -> Attention:
    return read_attention(open_checkpoint(folder).facts())


def decoder_of(folder: Path) -> Decoder:
    facts = open_checkpoint(folder).facts()
    layout = find_layout(facts.model_type)
    assert layout is not None
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    return Decoder(model, layout, layout.dimensions(facts.config).layers)


NO_NEURONS = FairnessPruningConfig.model_validate(
    {"pairs": [{"prompt_1": "a", "prompt_2": "b"}], "fraction": 0.0, "mode": "zero"}
)


def edited(
    folder: Path, target: Path, removed: Mapping[int, Sequence[int]], mode: HeadMode
) -> Path:
    apply_edit(
        folder,
        target,
        {},
        NO_NEURONS,
        should_stop=lambda: False,
        on_progress=lambda _done, _total: None,
        heads=HeadRemoval(removed, mode),
    )
    return target


def logits(decoder: Decoder) -> torch.Tensor:
    with torch.inference_mode():
        values: torch.Tensor = decoder.model(IDS).logits
    return values


def masked_logits(decoder: Decoder, attention: Attention, removed: Mapping[int, Any]) -> Any:
    factors = torch.ones(attention.shape.layers, attention.shape.heads)
    for layer, heads in removed.items():
        factors[layer, list(heads)] = 0
    with scaled_heads(decoder, attention, factors):
        return logits(decoder)


def assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert float((found - expected).abs().max()) <= TOLERANCE * float(expected.abs().max())


@pytest.mark.parametrize("family", layout_model_types())
def test_cleared_heads_equal_masked_heads_in_every_family(tmp_path: Path, family: str) -> None:
    folder = save_tiny_model(tmp_path / "base", family, tied=None)
    attention, removed = attention_of(folder), {0: [1], LAYERS - 1: [0, 3]}

    cleared = decoder_of(edited(folder, tmp_path / "edited", removed, "zero"))

    base = decoder_of(folder)
    expected = masked_logits(base, attention, removed)
    assert_close(logits(cleared), expected)
    # Otherwise two models that ignore their heads would pass.
    assert float((logits(base) - expected).abs().max()) > 1e-3 * float(expected.abs().max())


@pytest.mark.parametrize("family", REMOVABLE)
def test_removed_groups_equal_masked_groups_and_load_plainly(tmp_path: Path, family: str) -> None:
    folder = save_tiny_model(tmp_path / "base", family, tied=None)
    attention = attention_of(folder)
    assert removal_obstacle(open_checkpoint(folder).facts(), attention) is None
    # Another group in each layer, so that a mixed-up layer shows.
    removed = {0: [0, 1], 1: [2, 3], 2: [0, 1]}

    target = edited(folder, tmp_path / "edited", removed, "remove")

    model, loading = AutoModelForCausalLM.from_pretrained(
        target, attn_implementation="eager", output_loading_info=True
    )
    assert not any(loading.values())
    shortened = decoder_of(target)
    assert_close(logits(shortened), masked_logits(decoder_of(folder), attention, removed))
    assert attention_of(target).shape.heads == 2
    assert attention_of(target).shape.key_value_heads == 1
    # So that the result can be the model of a next job.
    assert check_native_tensors(open_checkpoint(target).facts()) == ()
    model.save_pretrained(tmp_path / "again")
    assert_close(logits(decoder_of(tmp_path / "again")), logits(shortened))


@pytest.mark.parametrize("family", FIXED)
def test_families_without_a_config_for_fewer_heads_say_why(tmp_path: Path, family: str) -> None:
    facts = open_checkpoint(save_tiny_model(tmp_path / "base", family, tied=None)).facts()

    assert check_attention(facts) == ()
    reason = removal_obstacle(facts, read_attention(facts))

    assert reason is not None
    with pytest.raises(JobFailure, match="Heads cannot be removed"):
        plan_head_edits(open_checkpoint(tmp_path / "base"), HeadRemoval({0: [0, 1]}, "remove"))


@pytest.mark.parametrize("family", REMOVABLE)
def test_table_knows_which_families_demand_a_divisor_of_the_hidden_size(
    tmp_path: Path, family: str
) -> None:
    """Three of four heads: 32 is no multiple of 3. Plain transformers is the judge."""
    four = {"num_key_value_heads": 4, "num_attention_heads": 4, "head_dim": 8}
    settings: dict[str, Any] = dict(four)
    if family == "gemma3":
        settings = {"text_config": {**SETTINGS["gemma3"]["text_config"], **four}}
    folder = save_tiny_model(tmp_path / "base", family, tied=None, settings=settings)
    attention, removed = attention_of(folder), {layer: [2] for layer in range(LAYERS)}

    obstacle = kept_heads_obstacle(attention, 3)

    if obstacle is not None:
        with pytest.raises(JobFailure, match="demands that the number of heads divides"):
            edited(folder, tmp_path / "edited", removed, "remove")
        config = json.loads((folder / "config.json").read_text())
        config.get("text_config", config)["num_attention_heads"] = 3
        (folder / "config.json").write_text(json.dumps(config))
        with pytest.raises(Exception, match="not a multiple"):
            AutoModelForCausalLM.from_pretrained(folder)
    else:
        shortened = decoder_of(edited(folder, tmp_path / "edited", removed, "remove"))
        assert_close(logits(shortened), masked_logits(decoder_of(folder), attention, removed))


def test_what_stays_is_bit_identical(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "base", "qwen2", dtype=torch.bfloat16)
    removed = {layer: [2, 3] for layer in range(LAYERS)}

    target = edited(folder, tmp_path / "edited", removed, "remove")

    base = load_file(folder / "model.safetensors")
    after = load_file(target / "model.safetensors")
    rows = {"q_proj": slice(0, 16), "k_proj": slice(0, 8), "v_proj": slice(0, 8)}
    assert base.keys() == after.keys()
    for name, tensor in base.items():
        module = name.split(".")[-2]
        expected = tensor[rows[module]] if module in rows else tensor
        expected = expected[:, :16] if module == "o_proj" else expected
        assert torch.equal(after[name].view(torch.int16), expected.contiguous().view(torch.int16))


def test_clearing_touches_the_columns_of_the_head_and_nothing_else(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "base", "opt")

    target = edited(folder, tmp_path / "edited", {1: [2]}, "zero")

    base = load_file(folder / "model.safetensors")
    after = load_file(target / "model.safetensors")
    changed = [name for name in base if not torch.equal(base[name], after[name])]
    assert changed == ["model.decoder.layers.1.self_attn.out_proj.weight"]
    expected = base[changed[0]].clone()
    expected[:, 16:24] = 0
    assert torch.equal(after[changed[0]], expected)


def test_sharded_and_single_files_give_the_same_tensors(tmp_path: Path) -> None:
    removed = {layer: [0, 1] for layer in range(LAYERS)}
    results = []
    for sharded in (False, True):
        folder = save_tiny_model(tmp_path / f"base{sharded}", "mistral", sharded=sharded)
        target = edited(folder, tmp_path / f"edited{sharded}", removed, "remove")
        tensors: dict[str, torch.Tensor] = {}
        for path in target.glob("*.safetensors"):
            tensors |= load_file(path)
        results.append(tensors)

    single, many = results

    assert single.keys() == many.keys()
    assert all(torch.equal(single[name], many[name]) for name in single)


@pytest.mark.parametrize(
    ("removed", "told"),
    [
        ({0: [0, 1], 1: [0, 1]}, "different numbers"),
        ({0: [0], 1: [0], 2: [0]}, "share their key-value head"),
        ({0: [0, 1, 2, 3], 1: [0, 1, 2, 3], 2: [0, 1, 2, 3]}, "all of its heads"),
        ({0: [4]}, "do not exist"),
        ({0: [1, 1]}, "repeat"),
        ({3: [0, 1]}, "do not exist"),
    ],
)
def test_heads_that_cannot_be_removed_are_refused(
    tmp_path: Path, removed: dict[int, list[int]], told: str
) -> None:
    folder = save_tiny_model(tmp_path / "base", "llama")

    with pytest.raises(JobFailure, match=told):
        plan_head_edits(open_checkpoint(folder), HeadRemoval(removed, "remove"))


def slow_importance(folder: Path) -> list[list[float]]:
    """Frobenius norms of each head's matrices, sliced one by one."""
    attention = attention_of(folder)
    tensors = {n: t.double() for n, t in load_file(folder / "model.safetensors").items()}
    layout, shape = attention.layout, attention.shape
    scores = []
    for layer in range(shape.layers):
        output = tensors[attention.weight(layer, layout.output)]
        if layout.head_axis == 0:
            output = output.T
        row = []
        for head in range(shape.heads):
            own = slice(head * shape.head_dim, (head + 1) * shape.head_dim)
            score = float(torch.linalg.matrix_norm(output[:, own]))
            if layout.value is not None:
                group = shape.group_of(head)
                shared = slice(group * shape.head_dim, (group + 1) * shape.head_dim)
                value = tensors[attention.weight(layer, layout.value)]
                score *= float(torch.linalg.matrix_norm(value[shared]))
            row.append(score)
        scores.append(row)
    return scores


@pytest.mark.parametrize("family", ["llama", "opt", "gpt2", "phi3", "falcon"])
def test_importance_is_the_product_of_the_heads_norms(tmp_path: Path, family: str) -> None:
    folder = save_tiny_model(tmp_path / "base", family, tied=None)

    found = head_importance(folder, attention_of(folder))

    # float32 results of float64 sums: seven digits.
    np.testing.assert_allclose(
        np.stack([found[layer] for layer in range(LAYERS)]), slow_importance(folder), rtol=1e-6
    )


PAIRS = (((1, 5, 9, 4), (1, 6, 9, 4)), ((1, 8, 7, 3, 2), (1, 9, 7, 3, 2)), ((4, 2, 9), (5, 2, 9)))


def token_pairs() -> list[TokenPair]:
    return [
        TokenPair(number=n, category=0, ids_1=first, ids_2=second, alignment=align(first, second))
        for n, (first, second) in enumerate(PAIRS)
    ]


def observed(decoder: Decoder, attention: Attention, rule: ScoreRule) -> HeadScores:
    scores = new_head_scores(rule, attention.shape, categories=1)
    batches = make_batches(token_pairs(), max_tokens=16)
    assert len(batches) > 1
    with torch.inference_mode(), observed_heads(decoder, attention, scores, batches) as observer:
        follow = observer.following(lambda _done, _total: None)
        for number, batch in enumerate(batches):
            follow(number, len(batches))
            decoder.model(input_ids=batch.input_ids, attention_mask=batch.attention_mask)
    return scores


def slow_scores(decoder: Decoder, attention: Attention, rule: ScoreRule) -> npt.NDArray[np.float64]:
    """The definition: one prompt a forward pass, one head a slice."""
    shape = attention.shape
    seen: dict[int, torch.Tensor] = {}

    def keep(layer: int) -> Any:
        return lambda _module, args: seen.__setitem__(layer, args[0][0].double())

    handles = [
        decoder.module(n, attention.layout.output).register_forward_pre_hook(keep(n))
        for n in range(shape.layers)
    ]
    by_pair = []
    for first, second in PAIRS:
        sides = []
        for ids in (first, second):
            with torch.inference_mode():
                decoder.model(torch.tensor([ids]))
            sides.append(torch.stack([seen[n] for n in range(shape.layers)]))
        start = 0
        if rule.score_tokens == "affected":
            start = next(n for n, (a, b) in enumerate(zip(first, second, strict=True)) if a != b)
        one, other = sides[0][:, start:], sides[1][:, start:]
        if rule.token_reduction == "abs_then_mean":
            by_value = (one - other).abs().mean(1)
        else:
            by_value = (one.mean(1) - other.mean(1)).abs()
        by_pair.append(by_value.reshape(shape.layers, shape.heads, shape.head_dim).mean(2).numpy())
    for handle in handles:
        handle.remove()
    stacked = np.stack(by_pair)
    pooled = stacked.max(0) if rule.pair_aggregation == "max" else stacked.mean(0)
    return np.asarray(pooled)


@pytest.mark.parametrize("family", ["llama", "gpt2", "falcon"])
@pytest.mark.parametrize("token_reduction", ["abs_then_mean", "mean_then_abs"])
@pytest.mark.parametrize(("score_tokens", "pairs"), [("all", "mean"), ("affected", "max")])
def test_bias_scores_are_mean_differences_at_the_input_of_the_output_projection(
    tmp_path: Path, family: str, token_reduction: Any, score_tokens: Any, pairs: Any
) -> None:
    folder = save_tiny_model(tmp_path / "base", family, tied=None)
    decoder, attention = decoder_of(folder), attention_of(folder)
    rule = ScoreRule("gate_up", token_reduction, score_tokens, pairs)

    found = observed(decoder, attention, rule).mean_or_max(np.array([len(PAIRS)]))[0]

    # One fp32 forward over a padded batch against single ones: the bound of the diagnosis.
    np.testing.assert_allclose(found, slow_scores(decoder, attention, rule), rtol=1e-4, atol=1e-7)


def test_activations_outside_of_a_batch_are_an_error(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "base", "llama")
    decoder, attention = decoder_of(folder), attention_of(folder)
    rule = ScoreRule("gate_up", "abs_then_mean", "all", "mean")
    scores = new_head_scores(rule, attention.shape, categories=1)

    batches: list[PairBatch] = make_batches(token_pairs())
    with observed_heads(decoder, attention, scores, batches), pytest.raises(RuntimeError):
        decoder.model(IDS)


def test_hooks_are_gone_afterwards(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "base", "llama")
    decoder, attention = decoder_of(folder), attention_of(folder)
    before = logits(decoder)

    masked_logits(decoder, attention, {0: [0, 1, 2, 3]})

    assert torch.equal(logits(decoder), before)


def test_norms_over_all_heads_forbid_removal(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "base", "cohere", settings={"use_qk_norm": True})
    facts = open_checkpoint(folder).facts()

    reason = removal_obstacle(facts, read_attention(facts))

    assert reason is not None
    assert "_norm" in reason


def test_every_family_of_the_mlp_table_has_its_attention() -> None:
    assert [name for name in layout_model_types() if find_attention(name) is None] == []
