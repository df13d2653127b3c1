"""Tiny models for tests, written without torch."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

HIDDEN = 8
NEURONS = 16
LAYERS = 2
VOCABULARY = 32


def write_tiny_model(folder: Path, *, seed: int = 0) -> Path:
    """Write a random model of Llama's layout into `folder`; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    tensors = {
        name: rng.standard_normal(shape).astype(np.float32) for name, shape in _shapes().items()
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(_config(), indent=2), encoding="utf-8")
    return folder


def _config() -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "intermediate_size": NEURONS,
        "max_position_embeddings": 64,
        "num_attention_heads": 2,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "vocab_size": VOCABULARY,
    }


def _shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCABULARY, HIDDEN),
        "model.norm.weight": (HIDDEN,),
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        shapes |= {
            f"{prefix}.input_layernorm.weight": (HIDDEN,),
            f"{prefix}.post_attention_layernorm.weight": (HIDDEN,),
            f"{prefix}.mlp.gate_proj.weight": (NEURONS, HIDDEN),
            f"{prefix}.mlp.up_proj.weight": (NEURONS, HIDDEN),
            f"{prefix}.mlp.down_proj.weight": (HIDDEN, NEURONS),
        }
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            shapes[f"{prefix}.self_attn.{name}.weight"] = (HIDDEN, HIDDEN)
    return shapes
