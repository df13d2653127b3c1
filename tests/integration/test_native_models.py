"""The tables of config keys and tensors agree with the library they speak of."""

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM
from transformers.activations import ACT2FN
from transformers.configuration_utils import _LEGACY_LAYER_TYPE_REMAP, ALLOWED_LAYER_TYPES
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from app.domain.models import TensorFact
from app.domain.native_derived import DERIVED_FAMILIES
from app.domain.native_tensors import ACTIVATIONS, NATIVE_MODEL_TYPES
from app.security.config_values import DTYPES, LAYER_TYPES, ROPE_TYPES
from app.security.model_config import KEYED_MODEL_TYPES, clean_config
from app.security.native_tensors import verify_native_tensors
from tests.tiny_models import SETTINGS, save_tiny_model


@pytest.mark.parametrize("model_type", sorted(KEYED_MODEL_TYPES))
def test_no_key_of_the_library_is_dropped(model_type: str) -> None:
    config_class = CONFIG_MAPPING[model_type]
    config = config_class().to_dict()
    config |= dict.fromkeys(set(inspect.signature(config_class).parameters) - {"kwargs"})
    config |= {"model_type": model_type, "rope_theta": 1e4, "rope_scaling": None}

    assert clean_config(config).config.keys() == config.keys()


def test_every_name_of_the_library_is_known() -> None:
    assert set(ALLOWED_LAYER_TYPES) | set(_LEGACY_LAYER_TYPE_REMAP) == LAYER_TYPES
    assert set(ROPE_INIT_FUNCTIONS) <= ROPE_TYPES
    assert all(isinstance(getattr(torch, name), torch.dtype) for name in DTYPES)


# Every switch of a family that adds or takes away tensors, the other way round than by default.
SWITCHES: dict[str, Any] = {
    "attention_bias": True,
    "mlp_bias": True,
    "use_bias": False,
    "use_qkv_bias": True,
    "qk_layernorm": True,
    "use_qk_norm": True,
    "use_parallel_residual": True,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "as is": {},
    "switched": SWITCHES,
    "other head size": {"head_dim": 6},
    "no biases": {"attention_bias": False},
    # None: left out, so that the class takes its own value.
    "sizes by default": {"num_key_value_heads": None, "head_dim": None, "n_inner": None},
}


# With variants of their own, below.
DERIVED = {name for row in DERIVED_FAMILIES for name in row.model_types}
CASES = [
    (model_type, variant)
    for model_type in sorted(NATIVE_MODEL_TYPES - DERIVED)
    for variant in VARIANTS
    # This class cannot be built without its key-value heads.
    if (model_type, variant) != ("nemotron", "sizes by default")
]


@pytest.mark.parametrize(("model_type", "variant"), CASES)
def test_expected_tensors_are_those_of_the_library(model_type: str, variant: str) -> None:
    settings = {"vocab_size": 20, "pad_token_id": 0, **SETTINGS[model_type], **VARIANTS[variant]}
    given = {name: value for name, value in settings.items() if value is not None}
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[model_type](**given))
    facts = {
        name: TensorFact("F32", tuple(value.shape), "model.safetensors", 0)
        for name, value in model.state_dict().items()
    }

    verify_native_tensors({"model_type": model_type, **given}, facts)


FALCONS: dict[str, dict[str, Any]] = {
    "7B": {},
    "1B": {"alibi": True, "bias": True, "multi_query": False, "parallel_attn": False},
    "40B": {"new_decoder_architecture": True, "num_kv_heads": 2},
    "11B": {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1},
    "new, every head its own": {"new_decoder_architecture": True},
    "new, one after the other": {"new_decoder_architecture": True, "parallel_attn": False},
    "two norms of the old kind": {"num_ln_in_parallel_attn": 2},
    "many keys": {"multi_query": False},
    "own width": {"ffn_hidden_size": 24},
}


@pytest.mark.parametrize("variant", FALCONS)
def test_expected_tensors_of_every_falcon_are_those_of_the_library(variant: str) -> None:
    settings = {"vocab_size": 20, **SETTINGS["falcon"], **FALCONS[variant]}
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(CONFIG_MAPPING["falcon"](**settings))
    facts = {
        name: TensorFact("F32", tuple(value.shape), "model.safetensors", 0)
        for name, value in model.state_dict().items()
    }

    verify_native_tensors({"model_type": "falcon", **settings}, facts)


@pytest.mark.parametrize(
    "variant",
    [
        {},
        {"q_lora_rank": None},
        {"attention_bias": True, "n_shared_experts": 3},
        {"first_k_dense_replace": 0},
        {"first_k_dense_replace": 2, "n_routed_experts": 3},
    ],
)
def test_expected_tensors_of_experts_are_those_that_the_library_saves(
    variant: dict[str, Any], tmp_path: Path
) -> None:
    folder = save_tiny_model(tmp_path / "model", "deepseek_v2", settings=variant)
    with safe_open(folder / "model.safetensors", "pt") as file:
        facts = {
            name: TensorFact("F32", tuple(file.get_slice(name).get_shape()), "", 0)
            for name in file.keys()  # noqa: SIM118 (not a mapping)
        }
    config = json.loads((folder / "config.json").read_bytes())

    verify_native_tensors(config, facts)


def test_known_activations_are_those_of_the_library_without_parameters() -> None:
    plain = {name for name in ACT2FN if not list(ACT2FN[name].parameters())}

    assert plain == ACTIVATIONS
