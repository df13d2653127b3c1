"""Hold a model with foreign code against what the library's own class expects."""

from collections.abc import Mapping
from typing import Any

from app.domain.models import TensorFact
from app.domain.native_tensors import Shape, differences, expected_tensors
from app.security.safetensors_check import unsafe
from app.security.strict_json import printable


def verify_native_tensors(config: Mapping[str, Any], tensors: Mapping[str, TensorFact]) -> None:
    """Compare every tensor name and shape with those of the library's class for `model_type`.

    The output head may be missing (it is then tied). Raises `UnsafeModelFormat` naming the first
    difference: the model is then not what its `model_type` says, and its own code would be needed.
    """
    try:
        expected = dict(expected_tensors(config))
    except ValueError as exc:
        raise unsafe("config_invalid", str(exc)) from exc
    for name, wanted, found in differences(expected, tensors):
        _refuse(name, wanted, found)


def _refuse(name: str, expected: Shape | None, found: Shape | None) -> None:
    if expected is None:
        difference = "which that architecture does not have"
    elif found is None:
        difference = "which is missing"
    else:
        difference = f"of shape {list(found)} where {list(expected)} is expected"
    raise unsafe(
        "custom_architecture",
        "The model names code of its own (auto_map) and differs from the architecture its "
        f"model_type names: tensor {printable(name)}, {difference}. Code from a model is never "
        "run: give a model that transformers supports natively.",
    )
