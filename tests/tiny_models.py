"""Small random decoders, saved like real checkpoints."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2")
"""The families that read every setting of `save_tiny_model` and have three layers here."""

LAYERS, HIDDEN, NEURONS, VOCABULARY = 3, 32, 40, 64
# Small enough that the three layers and the embedding go to several files.
SHARD_SIZE = "20KB"

_LLAMA_LIKE: Mapping[str, Any] = {
    "hidden_size": HIDDEN,
    "intermediate_size": NEURONS,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
}
_GPT: Mapping[str, Any] = {
    "n_embd": HIDDEN,
    "n_inner": NEURONS,
    "n_layer": LAYERS,
    "n_head": 4,
    "n_positions": 64,
    "initializer_range": 0.2,
}
_ROTARY_GPT = {**_GPT, "rotary_dim": 8}
_FEW_EXPERTS = {"moe_intermediate_size": 8, "num_experts_per_tok": 2}
_DEEPSEEK: Mapping[str, Any] = {
    **_LLAMA_LIKE,
    **_FEW_EXPERTS,
    "num_key_value_heads": 4,
    "n_routed_experts": 4,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "head_dim": 4,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 4,
    "v_head_dim": 8,
    "kv_lora_rank": 8,
    "q_lora_rank": 8,
}

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(
        ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "smollm3"),
        _LLAMA_LIKE,
    ),
    **dict.fromkeys(
        ("stablelm", "olmo", "olmo2", "granite", "cohere", "cohere2", "phi3", "glm", "glm4"),
        _LLAMA_LIKE,
    ),
    **dict.fromkeys(("gpt_neox", "phi", "starcoder2", "nemotron"), _LLAMA_LIKE),
    **dict.fromkeys(("gpt2", "gpt_bigcode"), _GPT),
    **dict.fromkeys(("gptj", "codegen"), _ROTARY_GPT),
    "gemma3": {
        "text_config": {**_LLAMA_LIKE, "vocab_size": VOCABULARY, "model_type": "gemma3_text"},
        "vision_config": {
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "image_size": 28,
            "patch_size": 14,
        },
        "mm_tokens_per_image": 4,
        "initializer_range": 0.2,
    },
    "gpt_neo": {
        "hidden_size": HIDDEN,
        "intermediate_size": NEURONS,
        "num_layers": LAYERS,
        "num_heads": 4,
        "attention_types": [[["global", "local", "global"], 1]],
        "max_position_embeddings": 64,
        "initializer_range": 0.2,
    },
    "falcon": {
        "hidden_size": HIDDEN,
        "ffn_hidden_size": NEURONS,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
        "initializer_range": 0.2,
    },
    "opt": {**_LLAMA_LIKE, "ffn_dim": NEURONS, "word_embed_proj_dim": HIDDEN, "init_std": 0.2},
    "bloom": {"hidden_size": HIDDEN, "n_layer": LAYERS, "n_head": 4, "initializer_range": 0.2},
    "mpt": {
        "d_model": HIDDEN,
        "n_layers": LAYERS,
        "n_heads": 4,
        "max_seq_len": 64,
        "initializer_range": 0.2,
    },
    "mixtral": {**_LLAMA_LIKE, "num_local_experts": 4},
    "gpt_oss": {**_LLAMA_LIKE, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2_moe": {
        **_LLAMA_LIKE,
        **_FEW_EXPERTS,
        "num_experts": 4,
        "shared_expert_intermediate_size": 16,
    },
    # A plain MLP in layer 0 and experts after it, as in DeepSeek.
    "qwen3_moe": {**_LLAMA_LIKE, **_FEW_EXPERTS, "num_experts": 4, "mlp_only_layers": [0]},
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
}
"""What each family calls its sizes."""


def save_tiny_model(
    folder: Path,
    model_type: str,
    *,
    tied: bool | None = False,
    mlp_bias: bool = False,
    sharded: bool = False,
    dtype: torch.dtype = torch.float32,
    neurons: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Path:
    """Save a random model of one family; equal arguments give equal weights.

    `settings` go over those of the family; `neurons` is for families that call it
    `intermediate_size`. `tied` of None leaves the output head as the family has it.
    """
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        model_type,
        **{
            "vocab_size": VOCABULARY,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 0,
            **SETTINGS[model_type],
            **({} if tied is None else {"tie_word_embeddings": tied}),
            **({"mlp_bias": mlp_bias} if model_type == "llama" else {}),
            **({} if neurons is None else {"intermediate_size": neurons}),
            **(settings or {}),
        },
    )
    model = AutoModelForCausalLM.from_config(config)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            # Biases start at zero, where leaving one out would not show.
            torch.nn.init.normal_(parameter, std=0.2)
    model = model.to(dtype)
    model.save_pretrained(folder, max_shard_size=SHARD_SIZE if sharded else "1GB")
    return folder
