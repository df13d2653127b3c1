"""Clean a model's config.json: it is a stranger's file that decides which code runs."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from app.domain.errors import Finding, MethodModelIncompatible
from app.domain.native_tensors import NATIVE_MODEL_TYPES
from app.security.config_values import refuse_unknown_names
from app.security.safetensors_check import LFS_POINTER_START, unsafe
from app.security.strict_json import BrokenJson, parse_object, printable

MAX_CONFIG_BYTES = 4 * 1024 * 1024  # a config with 21,000 class labels has about 1 MiB
_MAX_CONFIG_DEPTH = 12

# The families whose config keys are listed below; the classes of the others read older spellings
# of their keys from wherever they are, so that a list could drop one without a word.
KEYED_MODEL_TYPES = frozenset({"llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2"})
# What the config classes of the Llama-like families know in transformers 5.24, with the older
# spellings they still read. tests/integration/test_native_models.py compares it with the classes.
# fmt: off
_LLAMA_LIKE_KEYS = frozenset({
    "_name_or_path", "architectures", "attention_bias", "attention_dropout",
    "attn_logit_softcapping", "bos_token_id", "chunk_size_feed_forward", "dtype", "eos_token_id",
    "final_logit_softcapping", "head_dim", "hidden_act", "hidden_activation", "hidden_size",
    "id2label", "initializer_range", "intermediate_size", "is_encoder_decoder", "label2id",
    "layer_types", "max_position_embeddings", "max_window_layers", "mlp_bias", "model_type",
    "num_attention_heads", "num_hidden_layers", "num_key_value_heads", "num_labels",
    "output_attentions", "output_hidden_states", "pad_token_id", "partial_rotary_factor",
    "pretraining_tp", "problem_type", "query_pre_attn_scalar", "return_dict", "rms_norm_eps",
    "rope_parameters", "rope_scaling", "rope_theta", "sliding_window", "tie_word_embeddings",
    "tokenizer_class", "torch_dtype", "transformers_version", "use_bidirectional_attention",
    "use_cache", "use_sliding_window", "vocab_size",
})
# fmt: on
GENERATION_CONFIG = "generation_config.json"
_TOKEN_ID_KEYS = frozenset({"bos_token_id", "eos_token_id", "pad_token_id"})
# Keys by which a file names code to import; without them the library's own classes are used.
_CODE_REFERENCES = frozenset({"auto_map", "custom_pipelines", "trust_remote_code"})
# How text generation keeps keys and values, which Gemma 2 and 3 and Command R7B say in both of
# their files. It selects none but the library's own classes, some of which need more packages.
_CACHE_CHOICE = "cache_implementation"
_DROPPED = _CODE_REFERENCES | {_CACHE_CHOICE}


@dataclass(frozen=True, slots=True)
class CleanedConfig:
    """A config without what could select code; `named_code` says that some was there."""

    config: Mapping[str, Any]
    warnings: tuple[str, ...]
    named_code: bool


def parse_config(data: bytes, *, name: str = "config.json") -> dict[str, Any]:
    """Parse a config file; raises `UnsafeModelFormat` where it is not a plain JSON object."""
    if data.startswith(LFS_POINTER_START):
        raise unsafe(
            "lfs_pointer",
            f"{name} is a Git LFS pointer, not the file. Fetch it with `git lfs pull`.",
        )
    try:
        return parse_object(data, max_bytes=MAX_CONFIG_BYTES, max_depth=_MAX_CONFIG_DEPTH)
    except BrokenJson as exc:
        raise unsafe(
            "config_invalid_json", f"{name} cannot be read: {exc}. Correct the file."
        ) from exc


def clean_config(config: Mapping[str, Any]) -> CleanedConfig:
    """Refuse or drop every key of config.json that selects code, and keep only known keys.

    References to a repository's own code are dropped, with a warning, where the library has its
    own class for the `model_type` (the caller then compares the tensors with that class), and
    refused elsewhere. For families whose keys are not listed here every other key is kept.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not model_type:
        raise unsafe(
            "model_type_missing",
            "config.json has no model_type. Add the one of the model's architecture, such as "
            '"llama".',
        )
    _refuse_quantized(config)
    _refuse_code_selectors(config)
    refuse_unknown_names(config)
    named_code = any(key in _CODE_REFERENCES for key, _ in _walk(config))
    if named_code and model_type not in NATIVE_MODEL_TYPES:
        raise unsafe(
            "custom_code",
            f"config.json names code of its own (auto_map) for model_type {printable(model_type)}."
            " Code from a model is never run: give a model that transformers supports natively.",
        )
    kept: dict[str, Any] = _without_dropped(config)
    if model_type in KEYED_MODEL_TYPES:
        kept = {key: value for key, value in kept.items() if key in _LLAMA_LIKE_KEYS}
    else:
        kept = {key: value for key, value in kept.items() if not _is_selector(key)}
    warnings = (
        ("The model names code of its own (auto_map). It was ignored: the library has its own.",)
        if named_code
        else ()
    )
    return CleanedConfig(kept, warnings, named_code)


def clean_file(name: str, data: bytes) -> bytes:
    """Return a small JSON file of a model as it may be given to a loader.

    config.json is cleaned in full; any other `*config.json` loses its references to code and its
    choice of a cache. Other files come back unchanged.
    """
    if name == "config.json":
        return _dump(clean_config(parse_config(data)).config)
    if not name.endswith("config.json"):
        return data
    content = parse_config(data, name=name)
    _refuse_code_selectors(content, name=name)
    if name == GENERATION_CONFIG:
        _refuse_bad_token_ids(content)
    if not any(key in _DROPPED for key, _ in _walk(content)):
        return data
    return _dump(_without_dropped(content))


def _refuse_bad_token_ids(content: Mapping[str, Any]) -> None:
    """Refuse token ids that text generation would only stumble over in a worker."""
    for key in _TOKEN_ID_KEYS & content.keys():
        value = content[key]
        ids = value if isinstance(value, list) else [value]
        if value is not None and not all(_is_token_id(item) for item in ids):
            raise unsafe(
                "config_invalid",
                f"{GENERATION_CONFIG} must give {key} as a token id or a list of token ids. "
                "Correct it.",
            )


def _is_token_id(value: object) -> bool:
    # Some models write -1 for a token they do not have.
    return type(value) is int and -1 <= value < 2**31


def _dump(content: Mapping[str, Any]) -> bytes:
    # Escaped to ASCII: a lone surrogate in a stranger's text has no UTF-8 form.
    return (json.dumps(content, indent=2) + "\n").encode()


def _walk(value: Any) -> Iterable[tuple[str, Any]]:
    """Yield every (key, value) of nested objects. The depth is limited by `parse_config`."""
    items = value.items() if isinstance(value, Mapping) else ()
    for key, child in items:
        yield key, child
        yield from _walk(child)
    for child in value if isinstance(value, list) else ():
        yield from _walk(child)


def _without_dropped(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_dropped(child) for key, child in value.items() if key not in _DROPPED}
    if isinstance(value, list):
        return [_without_dropped(child) for child in value]
    return value


def _is_selector(key: str) -> bool:
    lowered = key.lower()
    return lowered != _CACHE_CHOICE and (
        lowered.startswith("_attn_implementation")
        or lowered.endswith("_implementation")
        or lowered.endswith("_implementation_internal")
    )


def _refuse_code_selectors(config: Mapping[str, Any], *, name: str = "config.json") -> None:
    for key, value in _walk(config):
        selects = _is_selector(key) or "kernel" in key.lower()
        # A number or a list of numbers is a size (conv_kernel), and a flag selects nothing.
        if selects and _holds_text(value):
            raise unsafe(
                "code_selecting_key",
                f"{name} has the key {printable(key)}, which can select code to load. Remove it.",
            )


def _holds_text(value: Any) -> bool:
    if isinstance(value, list):
        return any(_holds_text(child) for child in value)
    return isinstance(value, str | Mapping)


def _refuse_quantized(config: Mapping[str, Any]) -> None:
    for key, value in _walk(config):
        if key in ("quantization_config", "compression_config") and value:
            raise quantized("config.json declares quantised weights (quantization_config).")


def quantized(reason: str) -> MethodModelIncompatible:
    """Make the error for a model whose weights are quantised."""
    message = f"{reason} Give the model in float32, bfloat16 or float16."
    return MethodModelIncompatible(
        message, findings=(Finding("/model", "quantized_checkpoint", message),)
    )
