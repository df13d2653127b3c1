"""The Gemma models, the last one with a vision tower."""

from typing import Any

from tests.hub_models.gated import FOUR_NORMS, attention, gated, llama, weights
from tests.hub_models.headers import HubModel, norms

_GEMMA: dict[str, Any] = {
    "architectures": ["GemmaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 2,
    "eos_token_id": 1,
    "head_dim": 256,
    "hidden_act": "gelu",
    "hidden_activation": None,
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "intermediate_size": 16384,
    "max_position_embeddings": 8192,
    "model_type": "gemma",
    "num_attention_heads": 8,
    "num_hidden_layers": 18,
    "num_key_value_heads": 1,
    "pad_token_id": 0,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.38.0.dev0",
    "use_cache": True,
    "vocab_size": 256000,
}
GEMMA = HubModel("google/gemma-2b", _GEMMA, llama(_GEMMA), "BF16", shards=2)
_GEMMA2: dict[str, Any] = {
    **_GEMMA,
    "architectures": ["Gemma2ForCausalLM"],
    "attn_logit_softcapping": 50.0,
    "cache_implementation": "hybrid",
    "final_logit_softcapping": 30.0,
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "model_type": "gemma2",
    "num_hidden_layers": 26,
    "num_key_value_heads": 4,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "torch_dtype": "float32",
}
GEMMA2 = HubModel(
    "google/gemma-2-2b",
    _GEMMA2,
    llama(_GEMMA2, layer_norms=FOUR_NORMS),
    "F32",
    shards=3,
    files={
        "generation_config.json": b"""{"_from_model_config": true, "bos_token_id": 2,
        "cache_implementation": "hybrid", "eos_token_id": 1, "pad_token_id": 0}"""
    },
)
_GEMMA3: dict[str, Any] = {
    **{k: v for k, v in _GEMMA2.items() if k != "hidden_act"},
    "architectures": ["Gemma3ForCausalLM"],
    "attn_logit_softcapping": None,
    "eos_token_id": [1, 106],
    "final_logit_softcapping": None,
    "hidden_size": 1152,
    "intermediate_size": 6912,
    "max_position_embeddings": 32768,
    "model_type": "gemma3_text",
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "rope_local_base_freq": 10000,
    "rope_theta": 1000000,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
    "torch_dtype": "bfloat16",
    "vocab_size": 262144,
}
GEMMA3_TEXT = HubModel(
    "google/gemma-3-1b-it",
    _GEMMA3,
    f"""
    {llama(_GEMMA3, layer_norms=FOUR_NORMS)}
    {weights("model.layers.{0-25}.self_attn.", 256, "q_norm", "k_norm")}
    """,
    "BF16",
)

_VISION = "vision_tower.vision_model."
_ENCODER = f"{_VISION}encoder.layers.{{0-26}}."
_TEXT = "language_model.model.layers.{0-33}."


def _tower_linear(module: str, rows: int, columns: int) -> str:
    return f"{_ENCODER}{module}.weight {rows} {columns}\n{_ENCODER}{module}.bias {rows}\n"


# Sizes that equal the defaults of the class are not in its config.json: heads, vocabulary.
GEMMA3 = HubModel(
    "google/gemma-3-4b-it",
    {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "boi_token_index": 255999,
        "eoi_token_index": 256000,
        "eos_token_id": [1, 106],
        "image_token_index": 262144,
        "initializer_range": 0.02,
        "mm_tokens_per_image": 256,
        "model_type": "gemma3",
        "text_config": {
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "model_type": "gemma3_text",
            "num_hidden_layers": 34,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            "sliding_window": 1024,
        },
        "torch_dtype": "bfloat16",
        "transformers_version": "4.50.0.dev0",
        "vision_config": {
            "hidden_size": 1152,
            "image_size": 896,
            "intermediate_size": 4304,
            "model_type": "siglip_vision_model",
            "num_attention_heads": 16,
            "num_hidden_layers": 27,
            "patch_size": 14,
            "vision_use_head": False,
        },
    },
    f"""
    language_model.model.embed_tokens.weight 262208 2560
    {attention(_TEXT, 2560, 2048, 1024)}
    {weights(f"{_TEXT}self_attn.", 256, "q_norm", "k_norm")}
    {gated(_TEXT, 2560, 10240)}
    {weights(_TEXT, 2560, *FOUR_NORMS)}
    language_model.model.norm.weight 2560
    multi_modal_projector.mm_input_projection_weight 1152 2560
    multi_modal_projector.mm_soft_emb_norm.weight 1152
    {_VISION}embeddings.patch_embedding.weight 1152 3 14 14
    {_VISION}embeddings.patch_embedding.bias 1152
    {_VISION}embeddings.position_embedding.weight 4096 1152
    {norms(_ENCODER, 1152, "layer_norm1", "layer_norm2")}
    {"".join(_tower_linear(f"self_attn.{n}_proj", 1152, 1152) for n in ("q", "k", "v", "out"))}
    {_tower_linear("mlp.fc1", 4304, 1152)}
    {_tower_linear("mlp.fc2", 1152, 4304)}
    {norms(_VISION, 1152, "post_layernorm")}
    """,
    "BF16",
    shards=2,
)

GEMMAS = (GEMMA, GEMMA2, GEMMA3_TEXT, GEMMA3)
