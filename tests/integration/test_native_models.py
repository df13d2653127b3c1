"""The tables of config keys and tensors agree with the library they speak of."""

import inspect
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.activations import ACT2FN
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from app.domain.models import TensorFact
from app.domain.native_tensors import ACTIVATIONS, NATIVE_MODEL_TYPES
from app.security.model_config import KEYED_MODEL_TYPES, clean_config
from app.security.native_tensors import verify_native_tensors
from tests.tiny_models import SETTINGS


@pytest.mark.parametrize("model_type", sorted(KEYED_MODEL_TYPES))
def test_no_key_of_the_library_is_dropped(model_type: str) -> None:
    config_class = CONFIG_MAPPING[model_type]
    config = config_class().to_dict()
    config |= dict.fromkeys(set(inspect.signature(config_class).parameters) - {"kwargs"})
    config |= {"model_type": model_type, "rope_theta": 1e4, "rope_scaling": None}

    assert clean_config(config).config.keys() == config.keys()


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


CASES = [
    (model_type, variant)
    for model_type in sorted(NATIVE_MODEL_TYPES)
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


def test_known_activations_are_those_of_the_library_without_parameters() -> None:
    plain = {name for name in ACT2FN if not list(ACT2FN[name].parameters())}

    assert plain == ACTIVATIONS
