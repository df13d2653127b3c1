"""More models with a gated MLP: OLMo, Granite, StableLM, Command R, Phi-3 and Phi-4, GLM."""

from typing import Any

from tests.hub_models.gated import (
    TWO_NORMS,
    attention,
    fused,
    gated,
    head,
    llama,
    query_biases,
    weights,
)
from tests.hub_models.headers import HubModel, norms

_OLMO: dict[str, Any] = {
    "architectures": ["OlmoForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "clip_qkv": None,
    "eos_token_id": 50279,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "intermediate_size": 8192,
    "max_position_embeddings": 2048,
    "model_type": "olmo",
    "num_attention_heads": 16,
    "num_hidden_layers": 16,
    "num_key_value_heads": 16,
    "pad_token_id": 1,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
    "transformers_version": "4.40.0.dev0",
    "use_cache": True,
    "vocab_size": 50304,
}
_L16 = "model.layers.{0-15}."
OLMO = HubModel(
    "allenai/OLMo-1B-hf",
    _OLMO,
    f"""
    model.embed_tokens.weight 50304 2048
    {attention(_L16, 2048, 2048, 2048)}
    {gated(_L16, 2048, 8192)}
    """,
    "F32",
)
_OLMO2: dict[str, Any] = {
    **{k: v for k, v in _OLMO.items() if k != "clip_qkv"},
    "architectures": ["Olmo2ForCausalLM"],
    "eos_token_id": 100257,
    "max_position_embeddings": 4096,
    "model_type": "olmo2",
    "pad_token_id": 100277,
    "rms_norm_eps": 1e-06,
    "rope_theta": 500000,
    "tie_word_embeddings": False,
    "use_cache": False,
    "vocab_size": 100352,
}
OLMO2 = HubModel(
    "allenai/OLMo-2-0425-1B",
    _OLMO2,
    f"""
    model.embed_tokens.weight 100352 2048
    {attention(_L16, 2048, 2048, 2048)}
    {weights(f"{_L16}self_attn.", 2048, "q_norm", "k_norm")}
    {gated(_L16, 2048, 8192)}
    {weights(_L16, 2048, "post_attention_layernorm", "post_feedforward_layernorm")}
    model.norm.weight 2048
    {head(_OLMO2)}
    """,
    "F32",
)
_GRANITE: dict[str, Any] = {
    "architectures": ["GraniteForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.1,
    "attention_multiplier": 0.015625,
    "bos_token_id": 0,
    "embedding_multiplier": 12.0,
    "eos_token_id": 0,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "intermediate_size": 8192,
    "logits_scaling": 8.0,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "granite",
    "num_attention_heads": 32,
    "num_hidden_layers": 40,
    "num_key_value_heads": 8,
    "pad_token_id": 0,
    "residual_multiplier": 0.22,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 5000000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.47.0",
    "use_cache": True,
    "vocab_size": 49155,
}
GRANITE = HubModel("ibm-granite/granite-3.1-2b-base", _GRANITE, llama(_GRANITE), "BF16", shards=2)

_STABLE: dict[str, Any] = {
    "architectures": ["StableLmForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 100257,
    "eos_token_id": 100257,
    "hidden_act": "silu",
    "hidden_dropout": 0.0,
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "intermediate_size": 5632,
    "layer_norm_eps": 1e-05,
    "max_position_embeddings": 4096,
    "model_type": "stablelm",
    "num_attention_heads": 32,
    "num_hidden_layers": 24,
    "num_key_value_heads": 32,
    "partial_rotary_factor": 0.25,
    "rope_theta": 10000,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "transformers_version": "4.38.0",
    "use_cache": True,
    "use_qkv_bias": True,
    "vocab_size": 100352,
}
_L24 = "model.layers.{0-23}."
STABLELM = HubModel(
    "stabilityai/stablelm-2-1_6b",
    _STABLE,
    f"""
    model.embed_tokens.weight 100352 2048
    {attention(_L24, 2048, 2048, 2048)}
    {query_biases(_L24, 2048, 2048)}
    {gated(_L24, 2048, 5632)}
    {norms(_L24, 2048, *TWO_NORMS)}
    {norms("model.", 2048, "norm")}
    {head(_STABLE)}
    """,
    "F16",
)
_COHERE: dict[str, Any] = {
    "architectures": ["CohereForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 5,
    "eos_token_id": 255001,
    "hidden_act": "silu",
    "hidden_size": 8192,
    "initializer_range": 0.02,
    "intermediate_size": 22528,
    "layer_norm_eps": 1e-05,
    "logit_scale": 0.0625,
    "max_position_embeddings": 8192,
    "model_max_length": 131072,
    "model_type": "cohere",
    "num_attention_heads": 64,
    "num_hidden_layers": 40,
    "num_key_value_heads": 64,
    "pad_token_id": 0,
    "pretraining_tp": 1,
    "rope_scaling": None,
    "rope_theta": 8000000.0,
    "torch_dtype": "float16",
    "transformers_version": "4.38.2",
    "use_cache": True,
    "vocab_size": 256000,
}
COMMAND_R = HubModel(
    "CohereLabs/c4ai-command-r-v01",
    _COHERE,
    llama(_COHERE, layer_norms=("input_layernorm",)),
    "F16",
    shards=15,
)
_COHERE2: dict[str, Any] = {
    **{k: v for k, v in _COHERE.items() if k not in ("model_max_length", "pretraining_tp")},
    "_name_or_path": "",
    "architectures": ["Cohere2ForCausalLM"],
    "cache_implementation": "hybrid",
    "head_dim": 128,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "layer_switch": 4,
    "logit_scale": 0.25,
    "max_position_embeddings": 132096,
    "model_type": "cohere2",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "order_of_interleaved_layers": "local_attn_first",
    "position_embedding_type": "rope_gptj",
    "rope_theta": 50000.0,
    "rotary_pct": 1.0,
    "sliding_window": 4096,
    "sliding_window_pattern": 4,
    "torch_dtype": "bfloat16",
    "use_embedding_sharing": True,
    "use_gated_activation": True,
    "use_parallel_block": True,
    "use_parallel_embedding": False,
}
COMMAND_R7B = HubModel(
    "CohereLabs/c4ai-command-r7b-12-2024",
    _COHERE2,
    llama(_COHERE2, layer_norms=("input_layernorm",)),
    "BF16",
    shards=4,
)

_PHI3: dict[str, Any] = {
    "architectures": ["Phi3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "auto_map": {
        "AutoConfig": "configuration_phi3.Phi3Config",
        "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM",
    },
    "bos_token_id": 1,
    "embd_pdrop": 0.0,
    "eos_token_id": 32000,
    "hidden_act": "silu",
    "hidden_size": 3072,
    "initializer_range": 0.02,
    "intermediate_size": 8192,
    "max_position_embeddings": 4096,
    "model_type": "phi3",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 32,
    "original_max_position_embeddings": 4096,
    "pad_token_id": 32000,
    "resid_pdrop": 0.0,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "sliding_window": 2047,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.40.2",
    "use_cache": True,
    "vocab_size": 32064,
}
_L32 = "model.layers.{0-31}."


def _phi3_tensors(*, vocabulary: int, fused_rows: int) -> str:
    return f"""
    model.embed_tokens.weight {vocabulary} 3072
    {_L32}self_attn.qkv_proj.weight {fused_rows} 3072
    {_L32}self_attn.o_proj.weight 3072 3072
    {fused(_L32, 3072, 8192)}
    {weights(_L32, 3072, *TWO_NORMS)}
    model.norm.weight 3072
    """


PHI_3 = HubModel(
    "microsoft/Phi-3-mini-4k-instruct",
    _PHI3,
    _phi3_tensors(vocabulary=32064, fused_rows=9216) + head(_PHI3),
    "BF16",
    shards=2,
)
PHI_4 = HubModel(
    "microsoft/Phi-4-mini-instruct",
    {
        **_PHI3,
        "auto_map": {
            **_PHI3["auto_map"],
            "AutoTokenizer": "Xenova/gpt-4o",
        },
        "bos_token_id": 199999,
        "eos_token_id": 199999,
        "full_attn_mod": 1,
        "interpolate_factor": 1,
        "lm_head_bias": False,
        "max_position_embeddings": 131072,
        "mlp_bias": False,
        "num_attention_heads": 24,
        "num_key_value_heads": 8,
        "pad_token_id": 199999,
        "partial_rotary_factor": 0.75,
        "rope_scaling": {
            "long_factor": [1.0] * 48,
            "short_factor": [1.0] * 48,
            "type": "longrope",
        },
        "sliding_window": 262144,
        "tie_word_embeddings": True,
        "vocab_size": 200064,
    },
    _phi3_tensors(vocabulary=200064, fused_rows=5120),
    "BF16",
    shards=2,
)
_GLM: dict[str, Any] = {
    "architectures": ["GlmForCausalLM"],
    "attention_bias": True,
    "attention_dropout": 0.0,
    "eos_token_id": [151329, 151336, 151338],
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 13696,
    "max_position_embeddings": 8192,
    "model_type": "glm",
    "num_attention_heads": 32,
    "num_hidden_layers": 40,
    "num_key_value_heads": 2,
    "pad_token_id": 151329,
    "partial_rotary_factor": 0.5,
    "rms_norm_eps": 1.5625e-07,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.46.0.dev0",
    "use_cache": True,
    "vocab_size": 151552,
}
_L40 = "model.layers.{0-39}."
GLM_4 = HubModel(
    "zai-org/glm-4-9b-hf",
    _GLM,
    f"""
    model.embed_tokens.weight 151552 4096
    {attention(_L40, 4096, 4096, 256)}
    {query_biases(_L40, 4096, 256)}
    {fused(_L40, 4096, 13696)}
    {weights(_L40, 4096, *TWO_NORMS)}
    model.norm.weight 4096
    {head(_GLM)}
    """,
    "BF16",
    shards=4,
)

OTHER_GATED = (
    OLMO,
    OLMO2,
    GRANITE,
    STABLELM,
    COMMAND_R,
    COMMAND_R7B,
    PHI_3,
    PHI_4,
    GLM_4,
)
