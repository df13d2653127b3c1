"""Families whose tensors follow from several settings of config.json at once.

Each has a function that works these out first; the lines are read as in `native_table`.
"""

from collections.abc import Mapping
from typing import Any

from app.domain.native_table import NativeFamily, with_bias


def _falcon_settings(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Work out key-value heads and norms, which differ between the 1B, 7B and 40B models."""
    heads = config.get("num_attention_heads")
    is_new = bool(config.get("new_decoder_architecture", False))
    key_value_heads = 1 if config.get("multi_query", True) else heads
    norms = config.get("num_ln_in_parallel_attn")
    if is_new:
        key_value_heads = config.get("num_kv_heads") or heads
        norms = 2 if norms is None else norms
    is_parallel = bool(config.get("parallel_attn", True))
    return {
        "num_key_value_heads": key_value_heads,
        "is_parallel": is_parallel,
        "has_two_norms": is_parallel and norms == 2,
    }


_FALCON = NativeFamily(
    ("falcon",),
    f"""
    lm_head.weight v h
    transformer.word_embeddings.weight v h
    {with_bias("transformer.ln_f")}
    """,
    f"""
    self_attention.query_key_value.weight t h
    self_attention.query_key_value.bias t ?bias
    self_attention.dense.weight h h
    self_attention.dense.bias h ?bias
    mlp.dense_h_to_4h.weight i h
    mlp.dense_h_to_4h.bias i ?bias
    mlp.dense_4h_to_h.weight h i
    mlp.dense_4h_to_h.bias h ?bias
    {with_bias("input_layernorm", when="!has_two_norms")}
    {with_bias("post_attention_layernorm", when="!is_parallel")}
    {with_bias("ln_attn", "ln_mlp", when="?has_two_norms")}
    """,
    activation_field="activation",
    reads_head_dim=False,
    derive=_falcon_settings,
)

_DEEPSEEK_DEFAULTS: Mapping[str, Any] = {
    "first_k_dense_replace": 0,
    "kv_lora_rank": 512,
    "moe_intermediate_size": 1407,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}


def _deepseek_settings(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Work out the sizes of an attention whose queries, keys and values are low-rank."""
    given = {**_DEEPSEEK_DEFAULTS, **config}
    names = ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "kv_lora_rank")
    nope, rope, value, rank = (_whole(given, name) for name in names)
    heads = _whole(given, "num_attention_heads")
    return {
        **{name: given[name] for name in _DEEPSEEK_DEFAULTS},
        "has_query_rank": given["q_lora_rank"] is not None,
        "query_width": heads * (nope + rope),
        "compressed_width": rank + rope,
        "expanded_width": heads * (nope + value),
        "value_width": heads * value,
        "shared_neurons": _whole(given, "n_shared_experts")
        * _whole(given, "moe_intermediate_size"),
    }


def _whole(config: Mapping[str, Any], name: str) -> int:
    value = config.get(name)
    if type(value) is not int or not 0 < value < 2**31:
        raise ValueError(f"config.json must give {name} as a whole number above 0. Correct it.")
    return value


def _gated(module: str, neurons: str, when: str = "") -> str:
    return f"""
    {module}.gate_proj.weight {neurons} h {when}
    {module}.up_proj.weight {neurons} h {when}
    {module}.down_proj.weight h {neurons} {when}
    """


# Experts are stored one by one; the class joins them while it loads.
_DEEPSEEK_V2 = NativeFamily(
    ("deepseek_v2",),
    "lm_head.weight v h\nmodel.embed_tokens.weight v h\nmodel.norm.weight h",
    f"""
    self_attn.q_proj.weight qk h !has_query_rank
    self_attn.q_a_proj.weight r h ?has_query_rank
    self_attn.q_a_proj.bias r ?has_query_rank ?attention_bias
    self_attn.q_a_layernorm.weight r ?has_query_rank
    self_attn.q_b_proj.weight qk r ?has_query_rank
    self_attn.kv_a_proj_with_mqa.weight c h
    self_attn.kv_a_proj_with_mqa.bias c ?attention_bias
    self_attn.kv_a_layernorm.weight n
    self_attn.kv_b_proj.weight x n
    self_attn.o_proj.weight h o
    self_attn.o_proj.bias h ?attention_bias
    input_layernorm.weight h
    post_attention_layernorm.weight h
    mlp.gate.weight e h ?is_sparse
    {_gated("mlp.experts.{e}", "m", "?is_sparse")}
    {_gated("mlp.shared_experts", "s", "?is_sparse")}
    {_gated("mlp", "i", "!is_sparse")}
    """,
    reads_head_dim=False,
    derive=_deepseek_settings,
    letters={
        "c": "compressed_width",
        "e": "n_routed_experts",
        "m": "moe_intermediate_size",
        "n": "kv_lora_rank",
        "o": "value_width",
        "qk": "query_width",
        "r": "q_lora_rank",
        "s": "shared_neurons",
        "x": "expanded_width",
    },
    dense_layers_field="first_k_dense_replace",
)

DERIVED_FAMILIES: tuple[NativeFamily, ...] = (_FALCON, _DEEPSEEK_V2)
