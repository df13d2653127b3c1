"""Models of experts: measured, never edited."""

from typing import Any

from tests.hub_models.gated import TWO_NORMS, attention, gated, head, query_biases, weights
from tests.hub_models.headers import HubModel

_MIXTRAL: dict[str, Any] = {
    "architectures": ["MixtralForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "model_type": "mixtral",
    "num_attention_heads": 32,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "output_router_logits": False,
    "rms_norm_eps": 1e-05,
    "rope_theta": 1000000.0,
    "router_aux_loss_coef": 0.02,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.36.0.dev0",
    "use_cache": True,
    "vocab_size": 32000,
}
_L32 = "model.layers.{0-31}."
_EXPERTS = f"{_L32}block_sparse_moe.experts.{{0-7}}."
MIXTRAL = HubModel(
    "mistralai/Mixtral-8x7B-v0.1",
    _MIXTRAL,
    f"""
    model.embed_tokens.weight 32000 4096
    {attention(_L32, 4096, 4096, 1024)}
    {_L32}block_sparse_moe.gate.weight 8 4096
    {_EXPERTS}w1.weight 14336 4096
    {_EXPERTS}w2.weight 4096 14336
    {_EXPERTS}w3.weight 14336 4096
    {weights(_L32, 4096, *TWO_NORMS)}
    model.norm.weight 4096
    {head(_MIXTRAL)}
    """,
    "BF16",
    shards=19,
)
_QWEN3: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "decoder_sparse_step": 1,
    "eos_token_id": 151645,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "intermediate_size": 6144,
    "max_position_embeddings": 40960,
    "max_window_layers": 48,
    "mlp_only_layers": [],
    "model_type": "qwen3_moe",
    "moe_intermediate_size": 768,
    "norm_topk_prob": True,
    "num_attention_heads": 32,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "output_router_logits": False,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000.0,
    "router_aux_loss_coef": 0.001,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.51.0",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
_L48 = "model.layers.{0-47}."
QWEN3_MOE = HubModel(
    "Qwen/Qwen3-30B-A3B",
    _QWEN3,
    f"""
    model.embed_tokens.weight 151936 2048
    {attention(_L48, 2048, 4096, 512)}
    {weights(f"{_L48}self_attn.", 128, "q_norm", "k_norm")}
    {_L48}mlp.gate.weight 128 2048
    {gated(_L48, 2048, 768).replace("mlp.", "mlp.experts.{0-127}.")}
    {weights(_L48, 2048, *TWO_NORMS)}
    model.norm.weight 2048
    {head(_QWEN3)}
    """,
    "BF16",
    shards=16,
)
_QWEN15: dict[str, Any] = {
    **{
        key: value
        for key, value in _QWEN3.items()
        if key not in ("attention_bias", "head_dim", "mlp_only_layers", "rope_scaling")
    },
    "architectures": ["Qwen2MoeForCausalLM"],
    "intermediate_size": 5632,
    "max_position_embeddings": 8192,
    "max_window_layers": 21,
    "model_type": "qwen2_moe",
    "moe_intermediate_size": 1408,
    "norm_topk_prob": False,
    "num_attention_heads": 16,
    "num_experts": 60,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 24,
    "num_key_value_heads": 16,
    "shared_expert_intermediate_size": 5632,
    "sliding_window": 32768,
}
_L24 = "model.layers.{0-23}."
QWEN15_MOE = HubModel(
    "Qwen/Qwen1.5-MoE-A2.7B",
    _QWEN15,
    f"""
    model.embed_tokens.weight 151936 2048
    {attention(_L24, 2048, 2048, 2048)}
    {query_biases(_L24, 2048, 2048)}
    {_L24}mlp.gate.weight 60 2048
    {_L24}mlp.shared_expert_gate.weight 1 2048
    {gated(_L24, 2048, 1408).replace("mlp.", "mlp.experts.{0-59}.")}
    {gated(_L24, 2048, 5632).replace("mlp.", "mlp.shared_expert.")}
    {weights(_L24, 2048, *TWO_NORMS)}
    model.norm.weight 2048
    {head(_QWEN15)}
    """,
    "BF16",
    shards=8,
)
_DEEPSEEK: dict[str, Any] = {
    "architectures": ["DeepseekV2ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "auto_map": {
        "AutoConfig": "configuration_deepseek.DeepseekV2Config",
        "AutoModel": "modeling_deepseek.DeepseekV2Model",
        "AutoModelForCausalLM": "modeling_deepseek.DeepseekV2ForCausalLM",
    },
    "aux_loss_alpha": 0.001,
    "bos_token_id": 100000,
    "eos_token_id": 100001,
    "first_k_dense_replace": 1,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "intermediate_size": 10944,
    "kv_lora_rank": 512,
    "max_position_embeddings": 163840,
    "model_type": "deepseek_v2",
    "moe_intermediate_size": 1408,
    "moe_layer_freq": 1,
    "n_group": 1,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "norm_topk_prob": False,
    "num_attention_heads": 16,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 27,
    "num_key_value_heads": 16,
    "pretraining_tp": 1,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "rms_norm_eps": 1e-06,
    "rope_scaling": {
        "beta_fast": 32,
        "beta_slow": 1,
        "factor": 40,
        "mscale": 0.707,
        "mscale_all_dim": 0.707,
        "original_max_position_embeddings": 4096,
        "type": "yarn",
    },
    "rope_theta": 10000,
    "routed_scaling_factor": 1.0,
    "scoring_func": "softmax",
    "seq_aux": True,
    "tie_word_embeddings": False,
    "topk_group": 1,
    "topk_method": "greedy",
    "torch_dtype": "bfloat16",
    "transformers_version": "4.33.1",
    "use_cache": True,
    "v_head_dim": 128,
    "vocab_size": 102400,
}
_L27, _SPARSE = "model.layers.{0-26}.", "model.layers.{1-26}."
DEEPSEEK_V2 = HubModel(
    "deepseek-ai/DeepSeek-V2-Lite",
    _DEEPSEEK,
    f"""
    model.embed_tokens.weight 102400 2048
    {_L27}self_attn.q_proj.weight 3072 2048
    {_L27}self_attn.kv_a_proj_with_mqa.weight 576 2048
    {_L27}self_attn.kv_a_layernorm.weight 512
    {_L27}self_attn.kv_b_proj.weight 4096 512
    {_L27}self_attn.o_proj.weight 2048 2048
    {gated("model.layers.0.", 2048, 10944)}
    {_SPARSE}mlp.gate.weight 64 2048
    {gated(_SPARSE, 2048, 1408).replace("mlp.", "mlp.experts.{0-63}.")}
    {gated(_SPARSE, 2048, 2816).replace("mlp.", "mlp.shared_experts.")}
    {weights(_L27, 2048, *TWO_NORMS)}
    model.norm.weight 2048
    {head(_DEEPSEEK)}
    """,
    "BF16",
    shards=4,
)

EXPERTS = (MIXTRAL, QWEN3_MOE, QWEN15_MOE, DEEPSEEK_V2)
