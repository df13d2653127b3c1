"""What loading a model would fail at is found in its config and headers."""

from collections.abc import Mapping
from typing import Any

import pytest

from app.domain.models import ModelFacts, TensorFact
from app.domain.native_tensors import check_native_tensors
from tests.model_files import CONFIG, llama_shapes

LAYER = "model.layers.1"


def messages(
    config: Mapping[str, Any] = {}, shapes: Mapping[str, list[int] | None] = {}
) -> list[str]:
    """Findings about a tiny Llama with changed settings and tensors (None: no such tensor)."""
    tensors = {
        name: TensorFact("F32", tuple(shape), "model.safetensors", 4)
        for name, shape in {**llama_shapes(), **shapes}.items()
        if shape is not None
    }
    found = check_native_tensors(ModelFacts({**CONFIG, **config}, tensors, ()))
    assert {(finding.pointer, finding.code) for finding in found} <= {
        ("/model", "checkpoint_inconsistent")
    }
    return [finding.message for finding in found]


def test_model_that_is_what_its_config_says_has_no_findings() -> None:
    assert messages() == []


@pytest.mark.parametrize(
    ("config", "shapes", "part"),
    [
        (
            {"vocab_size": 9},
            {},
            "`model.embed_tokens.weight` has shape [8, 4], config.json says [9, 4]",
        ),
        ({}, {f"{LAYER}.self_attn.k_proj.weight": [4, 4]}, "k_proj.weight` has shape [4, 4]"),
        ({"head_dim": 1}, {}, "`model.layers.0.self_attn.k_proj.weight` has shape [2, 4]"),
        ({}, {f"{LAYER}.self_attn.o_proj.weight": [2, 4]}, "o_proj.weight` has shape [2, 4]"),
        ({}, {f"{LAYER}.input_layernorm.weight": None}, "input_layernorm.weight` is missing"),
        ({}, {f"{LAYER}.self_attn.q_proj.bias": [4]}, "q_proj.bias` is not part of this"),
        ({"tie_word_embeddings": False}, {}, "`lm_head.weight` is missing"),
        ({"num_attention_heads": 0}, {}, "must give num_attention_heads as a whole number"),
        ({"vocab_size": "8"}, {}, "must give vocab_size as a whole number"),
        ({"hidden_act": "sliu"}, {}, "`hidden_act` that does not exist; known are: gelu,"),
        ({"hidden_act": ["silu"]}, {}, "`hidden_act` that does not exist"),
    ],
)
def test_contradiction_is_named(
    config: dict[str, Any], shapes: dict[str, list[int] | None], part: str
) -> None:
    assert part in messages(config, shapes)[0]


def test_heads_that_cannot_share_are_named() -> None:
    found = messages({"num_attention_heads": 4, "num_key_value_heads": 3})

    assert "says 4 attention heads share 3 key-value heads" in found[0]


def test_key_value_heads_of_null_are_as_many_as_heads() -> None:
    every_layer = {
        f"model.layers.{layer}.self_attn.{name}_proj.weight": [4, 4]
        for layer in range(2)
        for name in ("k", "v")
    }

    assert messages({"model_type": "mistral", "num_key_value_heads": None}, every_layer) == []


def test_gemma2_names_its_activation_by_another_key() -> None:
    found = messages({"model_type": "gemma2", "hidden_act": "none", "hidden_activation": "mush"})

    assert "`hidden_activation` that does not exist" in found[0]


def test_tied_head_and_old_buffers_do_not_matter() -> None:
    assert messages(shapes={f"{LAYER}.self_attn.rotary_emb.inv_freq": [2]}) == []


def test_names_as_saved_without_the_head_do_not_matter() -> None:
    headless = {name: None for name in llama_shapes() if name.startswith("model.")}
    renamed = {name.removeprefix("model."): llama_shapes()[name] for name in headless}

    assert messages(shapes={**headless, **renamed}) == []


def test_other_families_are_not_looked_at() -> None:
    assert messages({"model_type": "mamba"}) == []


def test_list_of_differences_is_cut() -> None:
    assert len(messages(shapes={f"extra.{number}": [1] for number in range(50)})) == 20


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "stablelm", "num_attention_heads": 2**30, "qk_layernorm": True},
        {"model_type": "deepseek_v2", "n_routed_experts": 2**30, "num_attention_heads": 1},
        {"model_type": "deepseek_v2", "n_routed_experts": 2**12, "num_hidden_layers": 999},
    ],
)
def test_number_of_tensors_has_a_limit(
    config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.domain.native_tensors._MAX_TENSORS", 1000)

    (message,) = messages(config)

    assert "more than 1000 tensors" in message


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "falcon", "num_attention_heads": "2"},
        {"model_type": "falcon", "new_decoder_architecture": True, "num_kv_heads": [1]},
        {"model_type": "deepseek_v2", "kv_lora_rank": None},
        {"model_type": "deepseek_v2", "q_lora_rank": "8"},
        {"model_type": "deepseek_v2", "first_k_dense_replace": -1},
    ],
)
def test_derived_sizes_that_are_no_numbers_are_named(config: dict[str, Any]) -> None:
    (message,) = messages(config)

    assert "as a whole number" in message
