"""The tensors of each family's class in the library (transformers 5.24), as data.

One tensor a line: its name, its shape in the letters below, and when it exists (`?setting`,
`!setting`: if that setting of config.json is true, or false). `{a}` in a name stands for each
head, `{b}` for each key-value head, `{e}` for each expert. tests/integration/test_native_models.py
compares with the classes.

v vocabulary; h hidden size; i neurons, j twice as many; a heads, b key-value heads, d size of one;
q = a d; k = b d; t = q + 2 k; p positions.

`native_derived` has families whose shapes follow several settings at once. Not listed: opt and
gpt_bigcode, gemma3 with its vision tower, and most families of experts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class NativeFamily:
    """The tensors of one or more model types.

    `around` are full names, `layer` those inside a layer. `defaults` are the values that the config
    class takes for what config.json leaves out (sizes not named: no default). Fields come as in
    config.json; `reads_head_dim` and `shares_heads` say whether a `head_dim` and a
    `num_key_value_heads` there count.

    `derive` works out settings from others; conditions and `letters`, further ones with the
    setting each stands for, may name them. `dense_layers_field` says how many of the first layers
    have no experts: the setting `is_sparse` is true in the others.
    """

    model_types: tuple[str, ...]
    around: str
    layer: str
    heads_field: tuple[str, ...] = ("num_attention_heads",)
    activation_field: str | None = "hidden_act"
    reads_head_dim: bool = True
    shares_heads: bool = True
    defaults: Mapping[str, Any] = field(default_factory=dict)
    derive: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda _: {}
    letters: Mapping[str, str] = field(default_factory=dict)
    dense_layers_field: str | None = None


def with_bias(*modules: str, shape: str = "h", when: str = "") -> str:
    """Write the lines of norms that have a weight and a bias."""
    parts = ("weight", "bias")
    return "\n".join(f"{module}.{part} {shape} {when}" for module in modules for part in parts)


def _biases(when: str = "", *names: str) -> str:
    shapes = {"q": "q", "k": "k", "v": "k", "o": "h"}
    return "\n".join(f"self_attn.{name}_proj.bias {shapes[name]} {when}" for name in names)


_HEAD = "lm_head.weight v h\nmodel.embed_tokens.weight v h\n"
_AROUND = _HEAD + "model.norm.weight h"
_ATTENTION = """
self_attn.q_proj.weight q h
self_attn.k_proj.weight k h
self_attn.v_proj.weight k h
self_attn.o_proj.weight h q
"""
_OPTIONAL_BIASES = _biases("?attention_bias", "q", "k", "v", "o")
_GATED = """
mlp.gate_proj.weight i h
mlp.up_proj.weight i h
mlp.down_proj.weight h i
mlp.gate_proj.bias i ?mlp_bias
mlp.up_proj.bias i ?mlp_bias
mlp.down_proj.bias h ?mlp_bias
"""
# Families that never read `mlp_bias`.
_GATED_PLAIN = "".join(line for line in _GATED.splitlines(keepends=True) if "?" not in line)
_FUSED = "\nmlp.gate_up_proj.weight j h\nmlp.down_proj.weight h i\n"
_NORMS = "\ninput_layernorm.weight h\npost_attention_layernorm.weight h\n"
_FOUR_NORMS = f"""{_NORMS}
pre_feedforward_layernorm.weight h
post_feedforward_layernorm.weight h
"""
_HEAD_NORMS = "\nself_attn.q_norm.weight d\nself_attn.k_norm.weight d\n"
_HEAD_LAYER_NORMS = ("self_attn.q_layernorm", "self_attn.k_layernorm")
_GPT_MLP = """
mlp.{up}.weight i h
mlp.{up}.bias i
mlp.{down}.weight h i
mlp.{down}.bias h
"""
_GPT_HEADS = ("n_head", "num_attention_heads")
_GPT_AROUND = f"""
lm_head.weight v h
transformer.wte.weight v h
{with_bias("transformer.ln_f")}
"""
_CONV1D = f"""
attn.c_attn.weight h t
attn.c_attn.bias t
attn.c_proj.weight h h
attn.c_proj.bias h
mlp.c_fc.weight h i
mlp.c_fc.bias i
mlp.c_proj.weight i h
mlp.c_proj.bias h
{with_bias("ln_1", "ln_2")}
"""


def _gpt_mlp(up: str, down: str) -> str:
    return _GPT_MLP.replace("{up}", up).replace("{down}", down)


NATIVE_FAMILIES: tuple[NativeFamily, ...] = (
    NativeFamily(("llama", "granite"), _AROUND, _ATTENTION + _OPTIONAL_BIASES + _GATED + _NORMS),
    NativeFamily(
        ("smollm3",),
        _AROUND,
        _ATTENTION + _OPTIONAL_BIASES + _GATED + _NORMS,
        defaults={"num_key_value_heads": 4},
    ),
    NativeFamily(
        ("mistral",),
        _AROUND,
        _ATTENTION + _GATED_PLAIN + _NORMS,
        defaults={"num_key_value_heads": 8},
    ),
    NativeFamily(
        ("qwen2",),
        _AROUND,
        _ATTENTION + _biases("", "q", "k", "v") + _GATED_PLAIN + _NORMS,
        defaults={"num_key_value_heads": 32},
    ),
    NativeFamily(
        ("qwen3",),
        _AROUND,
        _ATTENTION + _OPTIONAL_BIASES + _HEAD_NORMS + _GATED_PLAIN + _NORMS,
        defaults={"num_key_value_heads": 32, "head_dim": 128},
    ),
    NativeFamily(
        ("gemma",),
        _AROUND,
        _ATTENTION + _OPTIONAL_BIASES + _GATED_PLAIN + _NORMS,
        defaults={"num_key_value_heads": 16, "head_dim": 256},
    ),
    NativeFamily(
        ("gemma2",),
        _AROUND,
        _ATTENTION + _OPTIONAL_BIASES + _GATED_PLAIN + _FOUR_NORMS,
        activation_field="hidden_activation",
        defaults={"num_key_value_heads": 4, "head_dim": 256},
    ),
    NativeFamily(
        ("gemma3_text",),
        _AROUND,
        _ATTENTION + _OPTIONAL_BIASES + _HEAD_NORMS + _GATED_PLAIN + _FOUR_NORMS,
        activation_field="hidden_activation",
        defaults={"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256},
    ),
    NativeFamily(
        ("stablelm",),
        f"{_HEAD}{with_bias('model.norm')}",
        f"""{_ATTENTION}{_biases("?use_qkv_bias", "q", "k", "v")}{_GATED_PLAIN}
        {with_bias("input_layernorm")}
        {with_bias("post_attention_layernorm", when="!use_parallel_residual")}
        self_attn.q_layernorm.norms.{{a}}.weight d ?qk_layernorm
        self_attn.k_layernorm.norms.{{b}}.weight d ?qk_layernorm
        """,
        reads_head_dim=False,
        defaults={"num_key_value_heads": 32},
    ),
    NativeFamily(("olmo",), _HEAD, _ATTENTION + _OPTIONAL_BIASES + _GATED_PLAIN),
    NativeFamily(
        ("olmo2",),
        _AROUND,
        f"""{_ATTENTION}{_OPTIONAL_BIASES}{_GATED_PLAIN}
        self_attn.q_norm.weight q
        self_attn.k_norm.weight k
        post_attention_layernorm.weight h
        post_feedforward_layernorm.weight h
        """,
    ),
    NativeFamily(
        ("cohere",),
        _AROUND,
        f"""{_ATTENTION}{_OPTIONAL_BIASES}{_GATED_PLAIN}
        input_layernorm.weight h
        self_attn.q_norm.weight a d ?use_qk_norm
        self_attn.k_norm.weight b d ?use_qk_norm
        """,
    ),
    NativeFamily(
        ("cohere2",),
        _AROUND,
        f"{_ATTENTION}{_OPTIONAL_BIASES}{_GATED_PLAIN}input_layernorm.weight h",
    ),
    NativeFamily(
        ("phi3",),
        _AROUND,
        f"self_attn.qkv_proj.weight t h\nself_attn.o_proj.weight h q{_FUSED}{_NORMS}",
    ),
    NativeFamily(
        ("glm",),
        _AROUND,
        _ATTENTION + _biases("?attention_bias", "q", "k", "v") + _FUSED + _NORMS,
        defaults={"num_key_value_heads": 2, "head_dim": 128, "attention_bias": True},
    ),
    NativeFamily(
        ("glm4",),
        _AROUND,
        f"""{_ATTENTION}{_biases("?attention_bias", "q", "k", "v")}{_FUSED}{_NORMS}
        post_self_attn_layernorm.weight h
        post_mlp_layernorm.weight h
        """,
        defaults={"num_key_value_heads": 2, "head_dim": 128, "attention_bias": True},
    ),
    NativeFamily(
        ("phi",),
        f"{_HEAD}lm_head.bias v\n{with_bias('model.final_layernorm')}",
        f"""{_ATTENTION.replace("o_proj", "dense")}{_biases("", "q", "k", "v")}
        self_attn.dense.bias h
        {with_bias(*_HEAD_LAYER_NORMS, shape="d", when="?qk_layernorm")}
        {_gpt_mlp("fc1", "fc2")}
        {with_bias("input_layernorm")}
        """,
    ),
    NativeFamily(
        ("starcoder2",),
        f"{_HEAD}{with_bias('model.norm')}",
        f"""{_ATTENTION}{_biases("?use_bias", "q", "k", "v", "o")}
        mlp.c_fc.weight i h
        mlp.c_fc.bias i ?use_bias
        mlp.c_proj.weight h i
        mlp.c_proj.bias h ?use_bias
        {with_bias("input_layernorm", "post_attention_layernorm")}
        """,
        defaults={"num_key_value_heads": 2, "use_bias": True},
    ),
    NativeFamily(
        ("nemotron",),
        f"{_HEAD}{with_bias('model.norm')}",
        f"""{_ATTENTION}{_OPTIONAL_BIASES}
        mlp.up_proj.weight i h
        mlp.up_proj.bias i ?mlp_bias
        mlp.down_proj.weight h i
        mlp.down_proj.bias h ?mlp_bias
        {with_bias("input_layernorm", "post_attention_layernorm")}
        """,
    ),
    NativeFamily(
        ("gpt2",),
        f"{_GPT_AROUND}transformer.wpe.weight p h",
        _CONV1D,
        heads_field=_GPT_HEADS,
        activation_field="activation_function",
        reads_head_dim=False,
        shares_heads=False,
        defaults={"n_positions": 1024},
    ),
    NativeFamily(
        ("gpt_neo",),
        f"{_GPT_AROUND}transformer.wpe.weight p h",
        f"""
        attn.attention.q_proj.weight h h
        attn.attention.k_proj.weight h h
        attn.attention.v_proj.weight h h
        attn.attention.out_proj.weight h h
        attn.attention.out_proj.bias h
        {_gpt_mlp("c_fc", "c_proj")}
        {with_bias("ln_1", "ln_2")}
        """,
        heads_field=("num_heads", "num_attention_heads"),
        activation_field="activation_function",
        reads_head_dim=False,
        shares_heads=False,
        defaults={"max_position_embeddings": 2048},
    ),
    NativeFamily(
        ("gptj",),
        f"{_GPT_AROUND}lm_head.bias v",
        f"""
        attn.q_proj.weight h h
        attn.k_proj.weight h h
        attn.v_proj.weight h h
        attn.out_proj.weight h h
        {_gpt_mlp("fc_in", "fc_out")}
        {with_bias("ln_1")}
        """,
        heads_field=_GPT_HEADS,
        activation_field="activation_function",
        reads_head_dim=False,
        shares_heads=False,
    ),
    NativeFamily(
        ("codegen",),
        f"{_GPT_AROUND}lm_head.bias v",
        f"""
        attn.qkv_proj.weight t h
        attn.out_proj.weight h h
        {_gpt_mlp("fc_in", "fc_out")}
        {with_bias("ln_1")}
        """,
        heads_field=_GPT_HEADS,
        activation_field="activation_function",
        reads_head_dim=False,
        shares_heads=False,
    ),
    NativeFamily(
        ("gpt_neox",),
        f"""
        lm_head.weight v h
        gpt_neox.embed_in.weight v h
        {with_bias("gpt_neox.final_layer_norm")}
        """,
        f"""
        attention.query_key_value.weight t h
        attention.query_key_value.bias t ?attention_bias
        attention.dense.weight h h
        attention.dense.bias h ?attention_bias
        {_gpt_mlp("dense_h_to_4h", "dense_4h_to_h")}
        {with_bias("input_layernorm", "post_attention_layernorm")}
        """,
        reads_head_dim=False,
        shares_heads=False,
        defaults={"attention_bias": True},
    ),
    NativeFamily(
        ("bloom",),
        f"""
        lm_head.weight v h
        transformer.word_embeddings.weight v h
        {with_bias("transformer.word_embeddings_layernorm", "transformer.ln_f")}
        """,
        f"""
        self_attention.query_key_value.weight t h
        self_attention.query_key_value.bias t
        self_attention.dense.weight h h
        self_attention.dense.bias h
        {_gpt_mlp("dense_h_to_4h", "dense_4h_to_h")}
        {with_bias("input_layernorm", "post_attention_layernorm")}
        """,
        heads_field=_GPT_HEADS,
        activation_field=None,
        reads_head_dim=False,
        shares_heads=False,
    ),
    NativeFamily(
        ("mpt",),
        """
        lm_head.weight v h
        transformer.wte.weight v h
        transformer.norm_f.weight h
        """,
        """
        attn.Wqkv.weight t h
        attn.out_proj.weight h h
        ffn.up_proj.weight i h
        ffn.down_proj.weight h i
        norm_1.weight h
        norm_2.weight h
        """,
        heads_field=("n_heads", "num_attention_heads"),
        activation_field=None,
        reads_head_dim=False,
        shares_heads=False,
    ),
)
