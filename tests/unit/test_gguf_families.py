"""What can be exported to GGUF, told from config.json and headers."""

from typing import Any

import pytest

from app.domain.gguf_families import GGUF_FAMILIES, gguf_findings, gguf_warnings
from app.domain.models import ModelFacts, TensorFact

HEAD = {"lm_head.weight": TensorFact("F32", (8, 4), "model.safetensors", 128)}


def facts(model_type: str, *, obstacle: str | None = None, **config: Any) -> ModelFacts:
    return ModelFacts(
        {"model_type": model_type, **config}, HEAD, (), gguf_obstacle=lambda: obstacle
    )


@pytest.mark.parametrize("family", GGUF_FAMILIES, ids=lambda family: family.model_type)
def test_a_config_with_defaults_alone_is_exportable(family: Any) -> None:
    assert gguf_findings(facts(family.model_type)) == ()


def test_a_family_that_is_not_exportable_is_told_those_that_are() -> None:
    (finding,) = gguf_findings(facts("mixtral"))

    assert finding.pointer == "/outputs/formats"
    assert finding.code == "gguf_unsupported_architecture"
    assert "'mixtral'" in finding.message
    assert all(family.model_type in finding.message for family in GGUF_FAMILIES)


def test_a_model_without_tokenizer_is_refused() -> None:
    (finding,) = gguf_findings(ModelFacts({"model_type": "llama"}, HEAD, ()))

    assert "no tokenizer.json" in finding.message


def test_an_obstacle_in_the_tokenizer_is_passed_on() -> None:
    (finding,) = gguf_findings(facts("llama", obstacle="its model is Unigram, not BPE"))

    assert "Unigram" in finding.message


SPANNING = {"hidden_size": 64, "num_attention_heads": 4}


@pytest.mark.parametrize(
    ("model_type", "config", "reason"),
    [
        ("llama", {"hidden_act": "gelu"}, "hidden_act"),
        ("llama", {"max_position_embeddings": 10**12}, "`max_position_embeddings` 1000000000000,"),
        ("llama", {"max_position_embeddings": 2**32 - 1}, None),
        ("gpt2", {"n_positions": -1}, "`n_positions` -1,"),
        ("llama", {"rope_parameters": {"rope_theta": 1e39}}, "`rope_theta` 1e+39,"),
        ("llama", {"rope_theta": 1e10}, None),
        ("llama", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "'dynamic'"),
        ("llama", {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, "'yarn'"),
        ("phi3", {"rope_scaling": {"type": "longrope"}}, "'longrope'"),
        ("qwen2", {"use_sliding_window": True}, "use_sliding_window"),
        ("qwen2", {**SPANNING, "head_dim": 32}, "hidden size 64"),
        ("gemma2", {**SPANNING, "head_dim": 16}, "query_pre_attn_scalar"),
        ("gemma2", {"tie_word_embeddings": False}, None),
        ("gemma2", {**SPANNING, "tie_word_embeddings": False}, "not tied"),
        ("gemma2", {"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
        ("gemma3_text", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ("gemma3_text", {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "'yarn'"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        ("stablelm", {"qk_layernorm": True}, "qk_layernorm"),
        ("nemotron", {"hidden_act": "silu"}, "hidden_act"),
    ],
)
def test_settings_that_readers_compute_otherwise_are_refused(
    model_type: str, config: dict[str, Any], reason: str | None
) -> None:
    found = gguf_findings(facts(model_type, **config))

    if reason is None:
        assert found == ()
    else:
        assert any(reason in finding.message for finding in found), found
        assert {finding.code for finding in found} == {"gguf_unsupported_config"}


@pytest.mark.parametrize(
    ("model_type", "config"),
    [
        ("llama", {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}),
        ("llama", {"rope_scaling": None, "hidden_act": "silu"}),
        ("gemma3_text", {"rope_parameters": {"full_attention": {"rope_type": "linear"}}}),
        ("gemma2", {**SPANNING, "head_dim": 256, "query_pre_attn_scalar": 256}),
        ("gemma2", {**SPANNING, "num_hidden_layers": 46, "query_pre_attn_scalar": 16}),
        ("gemma2", {"layer_types": ["sliding_attention", "full_attention"]}),
        ("gpt2", {"activation_function": "gelu_new"}),
    ],
)
def test_settings_that_readers_know_are_exportable(model_type: str, config: dict[str, Any]) -> None:
    assert gguf_findings(facts(model_type, **config)) == ()


def test_values_of_a_strange_type_are_refused_in_few_words() -> None:
    strange = {**SPANNING, "head_dim": {}, "hidden_act": "x" * 10_000, "rope_scaling": [1]}

    (finding,) = gguf_findings(facts("qwen2", **strange))

    assert len(finding.message) < 300


def test_a_window_that_readers_ignore_is_warned_of() -> None:
    (warning,) = gguf_warnings(facts("mistral", sliding_window=4096, max_position_embeddings=32768))

    assert "4096" in warning


def test_a_window_as_wide_as_the_context_is_no_window() -> None:
    assert gguf_warnings(facts("mistral", sliding_window=64, max_position_embeddings=64)) == ()
    assert gguf_warnings(facts("gemma2", sliding_window=8, max_position_embeddings=64)) == ()
