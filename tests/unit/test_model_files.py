"""The allow-list of files, and the choice of weights among them."""

import pytest

from app.domain.errors import DebiasError, MethodModelIncompatible, UnsafeModelFormat
from app.security.model_files import WeightChoice, choose_weights, is_allowed_file


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "generation_config.json",
        "preprocessor_config.json",
        "model.safetensors",
        "model-00001-of-00002.safetensors",
        "model.safetensors.index.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "vocab.txt",
        "merges.txt",
        "tokenizer.model",
        "chat_template.jinja",
        "README.md",
        "LICENSE",
        "LICENSE.txt",
    ],
)
def test_files_of_a_model_are_allowed(name: str) -> None:
    assert is_allowed_file(name)


@pytest.mark.parametrize(
    "name",
    [
        "pytorch_model.bin",
        "model.pt",
        "model.pth",
        "model.ckpt",
        "model.pkl",
        "model.h5",
        "model.msgpack",
        "model.onnx",
        "modeling_custom.py",
        "LICENSE.py",
        "run.sh",
        "../config.json",
        "sub/config.json",
        "config.json\0",
        "CONFIG.JSON",
        ".gitattributes",
    ],
)
def test_other_files_are_not(name: str) -> None:
    assert not is_allowed_file(name)


def test_single_file_goes_before_an_index() -> None:
    names = {"config.json", "model.safetensors", "model.safetensors.index.json"}

    assert choose_weights(names) == WeightChoice(None, stale_index=True)


def test_index_is_taken_without_a_single_file() -> None:
    names = {"config.json", "model.safetensors.index.json", "model-1.safetensors"}

    assert choose_weights(names) == WeightChoice("model.safetensors.index.json")


@pytest.mark.parametrize(
    ("names", "error", "code", "advice"),
    [
        ({"model.safetensors"}, UnsafeModelFormat, "config_missing", "config.json"),
        ({"config.json"}, UnsafeModelFormat, "weights_missing", "model.safetensors"),
        (
            {"config.json", "pytorch_model.bin", "tokenizer.json"},
            UnsafeModelFormat,
            "unsafe_weights_only",
            "safe_serialization=True",
        ),
        (
            {"config.json", "consolidated.00.pth"},
            UnsafeModelFormat,
            "unsafe_weights_only",
            "save_pretrained",
        ),
        (
            {"config.json", "model.Q4.gguf"},
            UnsafeModelFormat,
            "weights_format",
            "original model",
        ),
        (
            {"config.json", "weights.safetensors"},
            UnsafeModelFormat,
            "weights_unnamed",
            "save_pretrained",
        ),
        (
            {"adapter_config.json", "adapter_model.safetensors"},
            MethodModelIncompatible,
            "adapter_checkpoint",
            "merge_and_unload",
        ),
    ],
)
def test_missing_weights_are_explained(
    names: set[str], error: type[DebiasError], code: str, advice: str
) -> None:
    with pytest.raises(error) as caught:
        choose_weights(names)

    assert caught.value.findings[0].code == code
    assert advice in caught.value.detail
