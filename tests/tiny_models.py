"""Small random decoders, saved like real checkpoints."""

from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2")
LAYERS, HIDDEN, NEURONS, VOCABULARY = 3, 32, 40, 64
# Small enough that the three layers and the embedding go to several files.
SHARD_SIZE = "20KB"


def save_tiny_model(
    folder: Path,
    model_type: str,
    *,
    tied: bool = False,
    mlp_bias: bool = False,
    sharded: bool = False,
    dtype: torch.dtype = torch.float32,
    neurons: int = NEURONS,
) -> Path:
    """Save a random model of one family; equal arguments give equal weights."""
    torch.manual_seed(0)
    extra = {"mlp_bias": mlp_bias} if model_type == "llama" else {}
    config = AutoConfig.for_model(
        model_type,
        hidden_size=HIDDEN,
        intermediate_size=neurons,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        vocab_size=VOCABULARY,
        max_position_embeddings=64,
        initializer_range=0.2,
        tie_word_embeddings=tied,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        **extra,
    )
    model = AutoModelForCausalLM.from_config(config)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            # Biases start at zero, where leaving one out would not show.
            torch.nn.init.normal_(parameter, std=0.2)
    model = model.to(dtype)
    model.save_pretrained(folder, max_shard_size=SHARD_SIZE if sharded else "1GB")
    return folder
