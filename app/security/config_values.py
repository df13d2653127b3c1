"""Refuse names in config.json that the library would only stumble over in a worker."""

from collections.abc import Iterator, Mapping
from typing import Any

from app.security.safetensors_check import unsafe
from app.security.strict_json import printable

# The library looks the name up in the module torch, whatever it finds there.
DTYPES = frozenset({"float16", "half", "bfloat16", "float32", "float", "float64", "double"})
# What transformers 5.24 knows (ROPE_INIT_FUNCTIONS, ALLOWED_LAYER_TYPES), with the older names
# that its config classes translate. tests/integration/test_native_models.py compares them.
ROPE_TYPES = frozenset({
    "axial", "default", "dynamic", "linear", "llama3", "longrope", "mrope", "proportional", "su",
    "xdrope", "yarn",
})  # fmt: skip
LAYER_TYPES = frozenset({
    "attention", "chunked_attention", "compressed_sparse_attention", "conv",
    "deepseek_sparse_attention", "dense", "full_attention", "heavily_compressed_attention",
    "hybrid", "hybrid_sliding", "indexed_attention", "linear_attention", "mamba",
    "minimax_m3_sparse", "moe", "qwen_sparse_attention", "reference_sliding_attention",
    "sliding_attention", "sparse", "window_attention",
})  # fmt: skip
_ROPE_SECTIONS = ("rope_scaling", "rope_parameters")


def refuse_unknown_names(config: Mapping[str, Any]) -> None:
    """Refuse dtypes, rotary embeddings and kinds of layers that the library does not have."""
    nested = config.get("text_config")
    for part in (config, nested) if isinstance(nested, Mapping) else (config,):
        for key in ("torch_dtype", "dtype"):
            if part.get(key) is not None:
                _refuse(key, part[key], DTYPES)
        kinds = part.get("layer_types")
        if kinds is not None and not isinstance(kinds, list):
            raise unsafe("config_invalid", "config.json must give layer_types as a list.")
        for kind in kinds or ():
            _refuse("layer_types", kind, LAYER_TYPES)
        for key, kind in _rope_types(part):
            _refuse(key, kind, ROPE_TYPES)


def _rope_types(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Name each kind of rotary embedding: of the model, or of each of its kinds of layers."""
    for name in _ROPE_SECTIONS:
        section = config.get(name)
        if not isinstance(section, Mapping):
            continue
        for part in (section, *section.values()):
            for key in ("rope_type", "type"):
                if isinstance(part, Mapping) and part.get(key) is not None:
                    yield f"{name}.{key}", part[key]


def _refuse(key: str, value: object, known: frozenset[str]) -> None:
    if isinstance(value, str) and value in known:
        return
    shown = printable(value) if isinstance(value, str) else f"a {type(value).__name__}"
    raise unsafe(
        "config_invalid",
        f"config.json has {shown} for {key}; known are {', '.join(sorted(known))}. Correct it.",
    )
