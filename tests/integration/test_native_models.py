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
from app.security.model_config import clean_config
from app.security.native_tensors import verify_native_tensors


@pytest.mark.parametrize("model_type", sorted(NATIVE_MODEL_TYPES))
def test_no_key_of_the_library_is_dropped(model_type: str) -> None:
    config_class = CONFIG_MAPPING[model_type]
    config = config_class().to_dict()
    config |= dict.fromkeys(set(inspect.signature(config_class).parameters) - {"kwargs"})
    config |= {"model_type": model_type, "rope_theta": 1e4, "rope_scaling": None}

    assert clean_config(config).config.keys() == config.keys()


@pytest.mark.parametrize("model_type", sorted(NATIVE_MODEL_TYPES))
@pytest.mark.parametrize("extra", [{}, {"head_dim": 6, "attention_bias": True, "mlp_bias": True}])
def test_expected_tensors_are_those_of_the_library(model_type: str, extra: dict[str, Any]) -> None:
    sizes = {
        "vocab_size": 20,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        **extra,
    }
    sizes |= {"num_key_value_heads": 2} if extra else {}
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[model_type](**sizes))
    facts = {
        name: TensorFact("F32", tuple(value.shape), "model.safetensors", 0)
        for name, value in model.state_dict().items()
    }

    verify_native_tensors({"model_type": model_type, **sizes}, facts)


def test_known_activations_are_those_of_the_library_without_parameters() -> None:
    plain = {name for name in ACT2FN if not list(ACT2FN[name].parameters())}

    assert plain == ACTIVATIONS
