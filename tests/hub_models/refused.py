"""Published repositories that are no decoder with float weights as safetensors."""

import dataclasses
from typing import Any

from tests.hub_models.gpt_like import GPT_J
from tests.hub_models.headers import HubModel
from tests.hub_models.llama_like import LLAMA_32
from tests.hub_models.other_gated import PHI_3
from tests.hub_models.plain_mlp import FALCON_7B

_BERT_LAYER = "bert.encoder.layer.{0-11}."
BERT = HubModel(
    "google-bert/bert-base-uncased",
    {
        "architectures": ["BertForMaskedLM"],
        "attention_probs_dropout_prob": 0.1,
        "gradient_checkpointing": False,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "hidden_size": 768,
        "initializer_range": 0.02,
        "intermediate_size": 3072,
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": 512,
        "model_type": "bert",
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
        "pad_token_id": 0,
        "position_embedding_type": "absolute",
        "transformers_version": "4.6.0.dev0",
        "type_vocab_size": 2,
        "use_cache": True,
        "vocab_size": 30522,
    },
    f"""
    bert.embeddings.LayerNorm.beta 768
    bert.embeddings.LayerNorm.gamma 768
    bert.embeddings.position_embeddings.weight 512 768
    bert.embeddings.token_type_embeddings.weight 2 768
    bert.embeddings.word_embeddings.weight 30522 768
    {_BERT_LAYER}attention.output.dense.weight 768 768
    {_BERT_LAYER}intermediate.dense.weight 3072 768
    {_BERT_LAYER}output.dense.weight 768 3072
    cls.predictions.bias 30522
    """,
    "F32",
)
T5 = HubModel(
    "google-t5/t5-small",
    {
        "architectures": ["T5ForConditionalGeneration"],
        "d_ff": 2048,
        "d_kv": 64,
        "d_model": 512,
        "decoder_start_token_id": 0,
        "dropout_rate": 0.1,
        "eos_token_id": 1,
        "initializer_factor": 1.0,
        "is_encoder_decoder": True,
        "layer_norm_epsilon": 1e-06,
        "model_type": "t5",
        "n_positions": 512,
        "num_heads": 8,
        "num_layers": 6,
        "output_past": True,
        "pad_token_id": 0,
        "relative_attention_num_buckets": 32,
        "task_specific_params": {"summarization": {"early_stopping": True, "num_beams": 4}},
        "use_cache": True,
        "vocab_size": 32128,
    },
    """
    shared.weight 32128 512
    decoder.block.{0-5}.layer.2.DenseReluDense.wi.weight 2048 512
    decoder.block.{0-5}.layer.2.DenseReluDense.wo.weight 512 2048
    """,
    "F32",
)


def _quantised(name: str, settings: dict[str, Any], tensors: str) -> HubModel:
    config = {**LLAMA_32.config, "quantization_config": settings, "torch_dtype": "float16"}
    return HubModel(name, config, f"model.embed_tokens.weight 128256 2048\n{tensors}", "F16")


_MLP = "model.layers.{0-15}.mlp.up_proj."
GPTQ = _quantised(
    "TheBloke/Llama-GPTQ",
    {"bits": 4, "group_size": 128, "desc_act": True, "quant_method": "gptq"},
    f"{_MLP}qweight 256 8192 I32\n{_MLP}qzeros 16 1024 I32\n{_MLP}scales 16 8192",
)
AWQ = _quantised(
    "casperhansen/llama-awq",
    {"bits": 4, "group_size": 128, "quant_method": "awq", "version": "gemm", "zero_point": True},
    f"{_MLP}qweight 2048 1024 I32\n{_MLP}qzeros 16 1024 I32\n{_MLP}scales 16 8192",
)
# As AutoGPTQ first saved models: nothing about it in config.json.
OLD_GPTQ = dataclasses.replace(
    GPTQ,
    name="TheBloke/Llama-old-GPTQ",
    config=LLAMA_32.config,
    files={"quantize_config.json": b'{"bits": 4, "group_size": 128}'},
)
GPT_OSS = HubModel(
    "openai/gpt-oss-20b",
    {
        "architectures": ["GptOssForCausalLM"],
        "attention_bias": True,
        "head_dim": 64,
        "hidden_act": "silu",
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "layer_types": ["sliding_attention", "full_attention"] * 12,
        "max_position_embeddings": 131072,
        "model_type": "gpt_oss",
        "num_attention_heads": 64,
        "num_experts_per_tok": 4,
        "num_hidden_layers": 24,
        "num_key_value_heads": 8,
        "num_local_experts": 32,
        "quantization_config": {
            "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router"],
            "quant_method": "mxfp4",
        },
        "rms_norm_eps": 1e-05,
        "rope_scaling": {"factor": 32.0, "rope_type": "yarn", "truncate": False},
        "rope_theta": 150000,
        "sliding_window": 128,
        "swiglu_limit": 7.0,
        "tie_word_embeddings": False,
        "vocab_size": 201088,
    },
    """
    model.embed_tokens.weight 201088 2880
    model.layers.{0-23}.input_layernorm.weight 2880
    model.layers.{0-23}.mlp.experts.gate_up_proj_blocks 32 5760 90 16 U8
    model.layers.{0-23}.mlp.experts.gate_up_proj_scales 32 5760 90 U8
    """,
    "BF16",
)
DEEPSEEK_V3 = HubModel(
    "deepseek-ai/DeepSeek-V3",
    {
        "architectures": ["DeepseekV3ForCausalLM"],
        "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"},
        "first_k_dense_replace": 3,
        "hidden_size": 7168,
        "model_type": "deepseek_v3",
        "moe_intermediate_size": 2048,
        "n_routed_experts": 256,
        "num_hidden_layers": 61,
        "quantization_config": {
            "activation_scheme": "dynamic",
            "fmt": "e4m3",
            "quant_method": "fp8",
            "weight_block_size": [128, 128],
        },
        "vocab_size": 129280,
    },
    """
    model.embed_tokens.weight 129280 7168
    model.layers.{0-60}.input_layernorm.weight 7168
    model.layers.{0-2}.mlp.down_proj.weight 7168 18432 F8_E4M3
    """,
    "BF16",
)
ADAPTER = HubModel(
    "org/llama-lora",
    {},
    "",
    "F32",
    adapter={"base_model_name_or_path": LLAMA_32.name, "peft_type": "LORA", "r": 8},
)
PICKLE_ONLY = dataclasses.replace(GPT_J, name="org/pickle-only", has_safetensors=False)
# A model whose own code makes it another one: the same type, but a gate beside the two maps.
CUSTOM_FALCON = dataclasses.replace(
    FALCON_7B,
    name="org/falcon-of-its-own",
    tensors=f"{FALCON_7B.tensors}\ntransformer.h.{{0-31}}.mlp.gate.weight 18176 4544",
)
CUSTOM_PHI = dataclasses.replace(
    PHI_3,
    name="org/phi-of-its-own",
    tensors=PHI_3.tensors.replace("o_proj.weight 3072 3072", "o_proj.weight 3072 1536"),
)
