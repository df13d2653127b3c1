"""What tensors the library's own classes expect, and where a checkpoint differs from them."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from app.domain.errors import Finding
from app.domain.models import ModelFacts, TensorFact

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

# Activations of transformers 5.24 that have no parameters of their own.
# fmt: off
ACTIVATIONS = frozenset({
    "gelu", "gelu_10", "gelu_accurate", "gelu_fast", "gelu_new", "gelu_python",
    "gelu_python_tanh", "gelu_pytorch_tanh", "hardswish", "laplace", "leaky_relu", "linear",
    "mish", "quick_gelu", "relu", "relu2", "relu6", "sigmoid", "silu", "sqrtsoftplus", "swish",
    "tanh",
})
# fmt: on
_OUTPUT_HEAD = "lm_head.weight"
# Causal masks, the constant that filled them, and rotary frequencies: saved by old versions of the
# library, computed by all later ones. Looked at only where a class expects no such tensor.
_OLD_BUFFERS = (
    ".attn.bias",
    ".attn.masked_bias",
    ".attn.causal_mask",
    ".attention.bias",
    ".attention.masked_bias",
    ".rotary_emb.inv_freq",
)
_ROOT = "model."
_MAX_FINDINGS = 20

Shape = tuple[int, ...]


def check_native_tensors(facts: ModelFacts) -> tuple[Finding, ...]:
    """Say where config.json and the tensors of a known family contradict each other.

    Looks at what loading would only find in a worker: rows of the embeddings, sizes of the
    attention heads, missing and surplus tensors, the activation. Empty for other families.
    """
    if facts.model_type not in NATIVE_MODEL_TYPES:
        return ()
    try:
        expected = dict(expected_tensors(facts.config))
    except ValueError as exc:
        return (_finding(str(exc)),)
    found = [*_setting_findings(facts.config), *_tensor_findings(expected, facts)]
    return tuple(islice(found, _MAX_FINDINGS))


def differences(
    expected: Mapping[str, Shape], tensors: Mapping[str, TensorFact]
) -> Iterator[tuple[str, Shape | None, Shape | None]]:
    """Give name, expected and found shape of each tensor that differs; None for none.

    The output head may be missing: it is then tied.
    """
    found = {_with_root(name, expected): tensor.shape for name, tensor in tensors.items()}
    found = {n: shape for n, shape in found.items() if n in expected or not is_old_buffer(n)}
    for name in sorted(expected.keys() | found.keys()):
        is_tied = name == _OUTPUT_HEAD and name not in found
        if expected.get(name) != found.get(name) and not is_tied:
            yield name, expected.get(name), found.get(name)


def is_old_buffer(name: str) -> bool:
    """Whether a tensor that no class expects is one that old versions saved without need."""
    return name.endswith(_OLD_BUFFERS)


def _with_root(name: str, expected: Mapping[str, Shape]) -> str:
    """Name a tensor as in the whole model: the library also loads files saved without the head."""
    rooted = f"{_ROOT}{name}"
    return rooted if name not in expected and rooted in expected else name


def _setting_findings(config: Mapping[str, Any]) -> Iterator[Finding]:
    field = "hidden_activation" if config["model_type"] == "gemma2" else "hidden_act"
    activation = config.get(field)
    if activation is not None and str(activation) not in ACTIVATIONS:
        known = ", ".join(sorted(ACTIVATIONS))
        yield _finding(f"config.json has a `{field}` that does not exist; known are: {known}.")
    heads = _size(config, "num_attention_heads")
    shared = _key_value_heads(config, heads)
    if heads % shared:
        yield _finding(
            f"config.json says {heads} attention heads share {shared} key-value heads; the first "
            "must be a multiple of the second."
        )


def _tensor_findings(expected: Mapping[str, Shape], facts: ModelFacts) -> Iterator[Finding]:
    for name, wanted, found in differences(expected, facts.tensors):
        if wanted is None:
            message = f"`{name}` is not part of this architecture as config.json describes it"
        elif found is None:
            message = f"`{name}` is missing"
        else:
            message = f"`{name}` has shape {list(found)}, config.json says {list(wanted)}"
        yield _finding(f"{message}; weights and config are not of the same model.")
    untied = facts.config.get("tie_word_embeddings") is False
    if untied and _OUTPUT_HEAD not in facts.tensors:
        yield _finding(
            f"`{_OUTPUT_HEAD}` is missing, and config.json does not tie it to the embeddings."
        )


def _finding(message: str) -> Finding:
    return Finding(pointer="/model", code="checkpoint_inconsistent", message=message)


def expected_tensors(config: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    """Name every tensor of the library's class for `model_type`, with its shape.

    The output head is among them, though a checkpoint may leave it out where it is tied.

    Raises
    ------
    ValueError
        A size in config.json is missing, or no usable number.
    """
    hidden, vocabulary = _size(config, "hidden_size"), _size(config, "vocab_size")
    yield "model.embed_tokens.weight", (vocabulary, hidden)
    yield "lm_head.weight", (vocabulary, hidden)
    yield "model.norm.weight", (hidden,)
    layers = _size(config, "num_hidden_layers")
    if layers > _MAX_LAYERS:
        raise ValueError(f"config.json says {layers} layers; correct it.")
    layer = [*_attention(config, hidden), *_mlp(config, hidden), *_norms(config, hidden)]
    for index in range(layers):
        for name, shape in layer:
            yield f"model.layers.{index}.{name}", shape


def _attention(config: Mapping[str, Any], hidden: int) -> Iterator[tuple[str, Shape]]:
    model_type = config["model_type"]
    heads = _size(config, "num_attention_heads")
    key_value_heads = _key_value_heads(config, heads)
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


def _key_value_heads(config: Mapping[str, Any], heads: int) -> int:
    # Where the key is there but null, the classes take as many as there are heads.
    is_named = "num_key_value_heads" in config
    default = heads if is_named else _DEFAULT_KEY_VALUE_HEADS.get(config["model_type"], heads)
    return _size(config, "num_key_value_heads", default)


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
        raise ValueError(f"config.json must give {key} as a whole number above 0. Correct it.")
    return value
