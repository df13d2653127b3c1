"""What tensors the library's own classes expect, to hold a model with foreign code against."""

from collections.abc import Iterator, Mapping
from typing import Any

from app.domain.models import TensorFact
from app.security.safetensors_check import unsafe
from app.security.strict_json import printable

# The families whose tensors this module can list (transformers 5.24).
NATIVE_MODEL_TYPES = frozenset({"llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2"})
_MAX_LAYERS = 1000
# Values that the config classes take where config.json leaves the key out (None: derived).
_DEFAULT_HEAD_DIM: Mapping[str, int | None] = {"qwen3": 128, "gemma": 256, "gemma2": 256}
_DEFAULT_KEY_VALUE_HEADS: Mapping[str, int] = {
    "mistral": 8,
    "qwen2": 32,
    "qwen3": 32,
    "gemma": 16,
    "gemma2": 4,
}
# Families that read `attention_bias`; mistral never has one, qwen2 always (but for o_proj).
_OPTIONAL_ATTENTION_BIAS = frozenset({"llama", "qwen3", "gemma", "gemma2"})

Shape = tuple[int, ...]


def verify_native_tensors(config: Mapping[str, Any], tensors: Mapping[str, TensorFact]) -> None:
    """Compare every tensor name and shape with those of the library's class for `model_type`.

    The output head may be missing (it is then tied). Raises `UnsafeModelFormat` naming the first
    difference: the model is then not what its `model_type` says, and its own code would be needed.
    """
    expected = dict(_expected(config))
    found = {name: tensor.shape for name, tensor in tensors.items() if not _is_buffer(name)}
    for name in sorted(expected.keys() | found.keys()):
        if name == "lm_head.weight" and name not in found:
            continue
        _compare(name, expected.get(name), found.get(name))


def _is_buffer(name: str) -> bool:
    # Saved by old versions of the library, recomputed by all later ones.
    return name.endswith("rotary_emb.inv_freq")


def _compare(name: str, expected: Shape | None, found: Shape | None) -> None:
    if expected == found:
        return
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


def _expected(config: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    hidden, vocabulary = _size(config, "hidden_size"), _size(config, "vocab_size")
    yield "model.embed_tokens.weight", (vocabulary, hidden)
    yield "lm_head.weight", (vocabulary, hidden)
    yield "model.norm.weight", (hidden,)
    layers = _size(config, "num_hidden_layers")
    if layers > _MAX_LAYERS:
        raise unsafe("config_invalid", f"config.json says {layers} layers; correct it.")
    layer = [*_attention(config, hidden), *_mlp(config, hidden), *_norms(config, hidden)]
    for index in range(layers):
        for name, shape in layer:
            yield f"model.layers.{index}.{name}", shape


def _attention(config: Mapping[str, Any], hidden: int) -> Iterator[tuple[str, Shape]]:
    model_type = config["model_type"]
    heads = _size(config, "num_attention_heads")
    key_value_heads = _size(
        config, "num_key_value_heads", _DEFAULT_KEY_VALUE_HEADS.get(model_type, heads)
    )
    head_dim = _size(
        config, "head_dim", _DEFAULT_HEAD_DIM.get(model_type) or max(hidden // heads, 1)
    )
    rows = {"q": heads * head_dim, "k": key_value_heads * head_dim, "v": key_value_heads * head_dim}
    for projection, size in rows.items():
        yield f"self_attn.{projection}_proj.weight", (size, hidden)
    yield "self_attn.o_proj.weight", (hidden, heads * head_dim)
    with_bias = model_type in _OPTIONAL_ATTENTION_BIAS and config.get("attention_bias") is True
    if model_type == "qwen2" or with_bias:
        for projection, size in rows.items():
            yield f"self_attn.{projection}_proj.bias", (size,)
    if with_bias:
        yield "self_attn.o_proj.bias", (hidden,)
    if model_type == "qwen3":
        yield "self_attn.q_norm.weight", (head_dim,)
        yield "self_attn.k_norm.weight", (head_dim,)


def _mlp(config: Mapping[str, Any], hidden: int) -> Iterator[tuple[str, Shape]]:
    inner = _size(config, "intermediate_size")
    with_bias = config["model_type"] == "llama" and config.get("mlp_bias") is True
    for name, rows, columns in (
        ("gate_proj", inner, hidden),
        ("up_proj", inner, hidden),
        ("down_proj", hidden, inner),
    ):
        yield f"mlp.{name}.weight", (rows, columns)
        if with_bias:
            yield f"mlp.{name}.bias", (rows,)


def _norms(config: Mapping[str, Any], hidden: int) -> Iterator[tuple[str, Shape]]:
    names = ["input_layernorm", "post_attention_layernorm"]
    if config["model_type"] == "gemma2":
        names += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    for name in names:
        yield f"{name}.weight", (hidden,)


def _size(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = config.get(key)
    value = default if value is None else value
    if type(value) is not int or not 0 < value < 2**31:
        raise unsafe(
            "config_invalid", f"config.json must give {key} as a whole number above 0. Correct it."
        )
    return value
