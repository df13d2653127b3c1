"""Models with a gated MLP: Llama, SmolLM, Mistral, Qwen."""

from typing import Any

from tests.hub_models.gated import head, llama, query_biases, weights
from tests.hub_models.headers import HubModel

_LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "intermediate_size": 8192,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.45.0.dev0",
    "use_cache": True,
    "vocab_size": 128256,
}
LLAMA_32 = HubModel("meta-llama/Llama-3.2-1B", _LLAMA, llama(_LLAMA), "BF16")

_TINY = {
    **{k: v for k, v in _LLAMA.items() if k not in ("head_dim", "mlp_bias", "attention_dropout")},
    "bos_token_id": 1,
    "eos_token_id": 2,
    "intermediate_size": 5632,
    "max_position_embeddings": 2048,
    "num_hidden_layers": 22,
    "num_key_value_heads": 4,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "vocab_size": 32000,
}
TINYLLAMA = HubModel(
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0", _TINY, llama(_TINY) + head(_TINY), "BF16"
)
# Old Llama files carry the rotary frequencies of every layer.
_LLAMA_1 = {
    **_TINY,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 32,
}
LLAMA_1 = HubModel(
    "huggyllama/llama-7b",
    _LLAMA_1,
    f"""
    {llama(_LLAMA_1)}{head(_LLAMA_1)}
    model.layers.{{0-31}}.self_attn.rotary_emb.inv_freq 64 F32
    """,
    "F16",
    shards=2,
)
_SMOL: dict[str, Any] = {
    **{k: v for k, v in _LLAMA.items() if k != "head_dim"},
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "is_llama_config": True,
    "max_position_embeddings": 8192,
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "pad_token_id": 2,
    "rope_interleaved": False,
    "rope_scaling": None,
    "rope_theta": 100000,
    "transformers.js_config": {"kv_cache_dtype": {"fp16": "float16", "q4f16": "float16"}},
    "vocab_size": 49152,
}
SMOLLM2 = HubModel("HuggingFaceTB/SmolLM2-135M-Instruct", _SMOL, llama(_SMOL), "BF16")

_SMOL3: dict[str, Any] = {
    "architectures": ["SmolLM3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": None,
    "eos_token_id": 128012,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "intermediate_size": 11008,
    "layer_types": ["full_attention"] * 36,
    "max_position_embeddings": 65536,
    "max_window_layers": 28,
    "mlp_bias": False,
    "model_type": "smollm3",
    "no_rope_layer_interval": 4,
    "no_rope_layers": [1, 1, 1, 0] * 9,
    "num_attention_heads": 16,
    "num_hidden_layers": 36,
    "num_key_value_heads": 4,
    "pad_token_id": 128004,
    "pretraining_tp": 2,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 5000000.0,
    "sliding_window": None,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.54.0.dev0",
    "use_cache": False,
    "use_sliding_window": False,
    "vocab_size": 128256,
}
SMOLLM3 = HubModel("HuggingFaceTB/SmolLM3-3B", _SMOL3, llama(_SMOL3), "BF16", shards=2)

_MISTRAL: dict[str, Any] = {
    "architectures": ["MistralForCausalLM"],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "model_type": "mistral",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "sliding_window": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.34.0.dev0",
    "use_cache": True,
    "vocab_size": 32000,
}
MISTRAL = HubModel(
    "mistralai/Mistral-7B-v0.1", _MISTRAL, llama(_MISTRAL) + head(_MISTRAL), "BF16", shards=2
)

_QWEN25: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "eos_token_id": 151643,
    "hidden_act": "silu",
    "hidden_size": 896,
    "initializer_range": 0.02,
    "intermediate_size": 4864,
    "max_position_embeddings": 32768,
    "max_window_layers": 24,
    "model_type": "qwen2",
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "sliding_window": 32768,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.40.1",
    "use_cache": True,
    "use_mrope": False,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
QWEN25 = HubModel(
    "Qwen/Qwen2.5-0.5B",
    _QWEN25,
    llama(_QWEN25) + query_biases("model.layers.{0-23}.", 896, 128),
    "BF16",
)
_QWEN3: dict[str, Any] = {
    **{k: v for k, v in _QWEN25.items() if k != "use_mrope"},
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "head_dim": 128,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "max_position_embeddings": 40960,
    "max_window_layers": 28,
    "model_type": "qwen3",
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "rope_scaling": None,
    "sliding_window": None,
}
# Tied, and the head is stored all the same.
QWEN3 = HubModel(
    "Qwen/Qwen3-0.6B",
    _QWEN3,
    f"""
    {llama(_QWEN3)}{head(_QWEN3)}
    {weights("model.layers.{0-27}.self_attn.", 128, "q_norm", "k_norm")}
    """,
    "BF16",
)

LLAMA_LIKE = (
    LLAMA_32,
    TINYLLAMA,
    LLAMA_1,
    SMOLLM2,
    SMOLLM3,
    MISTRAL,
    QWEN25,
    QWEN3,
)
