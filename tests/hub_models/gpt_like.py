"""Models with a plain MLP, most of them older: GPT, OPT, BLOOM, MPT, Falcon, Phi and others."""

from typing import Any

from tests.hub_models.headers import HubModel, linear, norms

_SUMMARY = {
    "summary_activation": None,
    "summary_first_dropout": 0.1,
    "summary_proj_to_labels": True,
    "summary_type": "cls_index",
    "summary_use_proj": True,
}
_GPT2: dict[str, Any] = {
    **_SUMMARY,
    "activation_function": "gelu_new",
    "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1,
    "bos_token_id": 50256,
    "embd_pdrop": 0.1,
    "eos_token_id": 50256,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2",
    "n_ctx": 1024,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "resid_pdrop": 0.1,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    "vocab_size": 50257,
}


def _gpt2_tensors(root: str, layers: str) -> str:
    h = f"{root}h.{layers}."
    return f"""
    {root}wte.weight 50257 768
    {root}wpe.weight 1024 768
    {h}attn.bias 1 1 1024 1024
    {h}attn.c_attn.weight 768 2304
    {h}attn.c_attn.bias 2304
    {h}attn.c_proj.weight 768 768
    {h}attn.c_proj.bias 768
    {h}mlp.c_fc.weight 768 3072
    {h}mlp.c_fc.bias 3072
    {h}mlp.c_proj.weight 3072 768
    {h}mlp.c_proj.bias 768
    {norms(h, 768, "ln_1", "ln_2")}
    {norms(root, 768, "ln_f")}
    """


GPT2 = HubModel("openai-community/gpt2", _GPT2, _gpt2_tensors("", "{0-11}"), "F32")
DISTILGPT2 = HubModel(
    "distilbert/distilgpt2",
    {
        **_GPT2,
        "_num_labels": 1,
        "id2label": {"0": "LABEL_0"},
        "label2id": {"LABEL_0": 0},
        "n_layer": 6,
    },
    _gpt2_tensors("transformer.", "{0-5}"),
    "F32",
)

_NEOX = "gpt_neox.layers.{0-5}."
PYTHIA = HubModel(
    "EleutherAI/pythia-70m",
    {
        "architectures": ["GPTNeoXForCausalLM"],
        "bos_token_id": 0,
        "eos_token_id": 0,
        "hidden_act": "gelu",
        "hidden_size": 512,
        "initializer_range": 0.02,
        "intermediate_size": 2048,
        "layer_norm_eps": 1e-05,
        "max_position_embeddings": 2048,
        "model_type": "gpt_neox",
        "num_attention_heads": 8,
        "num_hidden_layers": 6,
        "rotary_emb_base": 10000,
        "rotary_pct": 0.25,
        "tie_word_embeddings": False,
        "torch_dtype": "float16",
        "transformers_version": "4.24.0",
        "use_cache": True,
        "use_parallel_residual": True,
        "vocab_size": 50304,
    },
    f"""
    gpt_neox.embed_in.weight 50304 512
    embed_out.weight 50304 512
    {_NEOX}attention.bias 1 1 2048 2048 BOOL
    {_NEOX}attention.masked_bias
    {_NEOX}attention.rotary_emb.inv_freq 8
    {linear(_NEOX + "attention.query_key_value", 1536, 512)}
    {linear(_NEOX + "attention.dense", 512, 512)}
    {linear(_NEOX + "mlp.dense_h_to_4h", 2048, 512)}
    {linear(_NEOX + "mlp.dense_4h_to_h", 512, 2048)}
    {norms(_NEOX, 512, "input_layernorm", "post_attention_layernorm")}
    {norms("gpt_neox.", 512, "final_layer_norm")}
    """,
    "F16",
)

_NEO = "transformer.h.{0-11}."
GPT_NEO = HubModel(
    "EleutherAI/gpt-neo-125m",
    {
        **_SUMMARY,
        "activation_function": "gelu_new",
        "architectures": ["GPTNeoForCausalLM"],
        "attention_dropout": 0,
        "attention_layers": ["global", "local"] * 6,
        "attention_types": [[["global", "local"], 6]],
        "bos_token_id": 50256,
        "embed_dropout": 0,
        "eos_token_id": 50256,
        "gradient_checkpointing": False,
        "hidden_size": 768,
        "initializer_range": 0.02,
        "intermediate_size": None,
        "layer_norm_epsilon": 1e-05,
        "max_position_embeddings": 2048,
        "model_type": "gpt_neo",
        "num_heads": 12,
        "num_layers": 12,
        "resid_dropout": 0,
        "transformers_version": "4.9.0.dev0",
        "use_cache": True,
        "vocab_size": 50257,
        "window_size": 256,
    },
    f"""
    transformer.wte.weight 50257 768
    transformer.wpe.weight 2048 768
    {_NEO}attn.attention.bias 1 1 2048 2048 U8
    {_NEO}attn.attention.masked_bias
    {_NEO}attn.attention.q_proj.weight 768 768
    {_NEO}attn.attention.k_proj.weight 768 768
    {_NEO}attn.attention.v_proj.weight 768 768
    {linear(_NEO + "attn.attention.out_proj", 768, 768)}
    {linear(_NEO + "mlp.c_fc", 3072, 768)}
    {linear(_NEO + "mlp.c_proj", 768, 3072)}
    {norms(_NEO, 768, "ln_1", "ln_2")}
    {norms("transformer.", 768, "ln_f")}
    """,
    "F32",
)

_J = "transformer.h.{0-27}."
GPT_J = HubModel(
    "EleutherAI/gpt-j-6b",
    {
        **_SUMMARY,
        "activation_function": "gelu_new",
        "architectures": ["GPTJForCausalLM"],
        "attn_pdrop": 0.0,
        "bos_token_id": 50256,
        "embd_pdrop": 0.0,
        "eos_token_id": 50256,
        "gradient_checkpointing": False,
        "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05,
        "model_type": "gptj",
        "n_embd": 4096,
        "n_head": 16,
        "n_inner": None,
        "n_layer": 28,
        "n_positions": 2048,
        "resid_pdrop": 0.0,
        "rotary": True,
        "rotary_dim": 64,
        "scale_attn_weights": True,
        "task_specific_params": {"text-generation": {"do_sample": True, "temperature": 1.0}},
        "tie_word_embeddings": False,
        "tokenizer_class": "GPT2Tokenizer",
        "transformers_version": "4.18.0.dev0",
        "use_cache": True,
        "vocab_size": 50400,
    },
    f"""
    transformer.wte.weight 50400 4096
    {_J}attn.bias 1 1 2048 2048 U8
    {_J}attn.masked_bias
    {_J}attn.q_proj.weight 4096 4096
    {_J}attn.k_proj.weight 4096 4096
    {_J}attn.v_proj.weight 4096 4096
    {_J}attn.out_proj.weight 4096 4096
    {linear(_J + "mlp.fc_in", 16384, 4096)}
    {linear(_J + "mlp.fc_out", 4096, 16384)}
    {norms(_J, 4096, "ln_1")}
    {norms("transformer.", 4096, "ln_f")}
    {linear("lm_head", 50400, 4096)}
    """,
    "F32",
    shards=3,
)

_GEN = "transformer.h.{0-19}."
CODEGEN = HubModel(
    "Salesforce/codegen-350M-mono",
    {
        **_SUMMARY,
        "activation_function": "gelu_new",
        "architectures": ["CodeGenForCausalLM"],
        "attn_pdrop": 0.0,
        "bos_token_id": 1,
        "embd_pdrop": 0.0,
        "eos_token_id": 50256,
        "gradient_checkpointing": False,
        "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05,
        "model_type": "codegen",
        "n_ctx": 2048,
        "n_embd": 1024,
        "n_head": 16,
        "n_inner": None,
        "n_layer": 20,
        "n_positions": 2048,
        "resid_pdrop": 0.0,
        "rotary_dim": 32,
        "scale_attn_weights": True,
        "tie_word_embeddings": False,
        "tokenizer_class": "GPT2Tokenizer",
        "torch_dtype": "float16",
        "use_cache": True,
        "vocab_size": 51200,
    },
    f"""
    transformer.wte.weight 51200 1024
    {_GEN}attn.causal_mask 1 1 2048 2048 U8
    {_GEN}attn.qkv_proj.weight 3072 1024
    {_GEN}attn.out_proj.weight 1024 1024
    {linear(_GEN + "mlp.fc_in", 4096, 1024)}
    {linear(_GEN + "mlp.fc_out", 1024, 4096)}
    {norms(_GEN, 1024, "ln_1")}
    {norms("transformer.", 1024, "ln_f")}
    {linear("lm_head", 51200, 1024)}
    """,
    "F16",
)

_OPT: dict[str, Any] = {
    "_remove_final_layer_norm": False,
    "activation_dropout": 0.0,
    "activation_function": "relu",
    "architectures": ["OPTForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 2,
    "do_layer_norm_before": True,
    "dropout": 0.1,
    "eos_token_id": 2,
    "ffn_dim": 3072,
    "hidden_size": 768,
    "init_std": 0.02,
    "layerdrop": 0.0,
    "max_position_embeddings": 2048,
    "model_type": "opt",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pad_token_id": 1,
    "prefix": "</s>",
    "torch_dtype": "float16",
    "transformers_version": "4.21.0.dev0",
    "use_cache": True,
    "vocab_size": 50272,
    "word_embed_proj_dim": 768,
}


def _opt_layer(prefix: str, hidden: int, neurons: int) -> str:
    attention = "".join(
        linear(f"{prefix}self_attn.{name}_proj", hidden, hidden) for name in ("q", "k", "v", "out")
    )
    return f"""
    {attention}
    {linear(prefix + "fc1", neurons, hidden)}
    {linear(prefix + "fc2", hidden, neurons)}
    {norms(prefix, hidden, "self_attn_layer_norm", "final_layer_norm")}
    """


OPT_125M = HubModel(
    "facebook/opt-125m",
    _OPT,
    f"""
    model.decoder.embed_tokens.weight 50272 768
    model.decoder.embed_positions.weight 2050 768
    {_opt_layer("model.decoder.layers.{0-11}.", 768, 3072)}
    {norms("model.decoder.", 768, "final_layer_norm")}
    lm_head.weight 50272 768
    """,
    "F16",
)
# Norms after the blocks, none at the end, and an embedding narrower than the layers.
OPT_350M = HubModel(
    "facebook/opt-350m",
    {
        **_OPT,
        "do_layer_norm_before": False,
        "ffn_dim": 4096,
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "num_hidden_layers": 24,
        "word_embed_proj_dim": 512,
    },
    f"""
    decoder.embed_tokens.weight 50272 512
    decoder.embed_positions.weight 2050 1024
    decoder.project_in.weight 1024 512
    decoder.project_out.weight 512 1024
    {_opt_layer("decoder.layers.{0-23}.", 1024, 4096)}
    """,
    "F16",
)

_BLOOM = "h.{0-23}."
BLOOM = HubModel(
    "bigscience/bloom-560m",
    {
        "apply_residual_connection_post_layernorm": False,
        "architectures": ["BloomForCausalLM"],
        "attention_dropout": 0.0,
        "attention_softmax_in_fp32": True,
        "bias_dropout_fusion": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_dropout": 0.0,
        "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05,
        "masked_softmax_fusion": True,
        "model_type": "bloom",
        "n_embed": 1024,
        "n_inner": None,
        "n_layer": 24,
        "num_attention_heads": 16,
        "offset_alibi": 100,
        "pad_token_id": 3,
        "pretraining_tp": 1,
        "seq_length": 2048,
        "skip_bias_add": True,
        "skip_bias_add_qkv": False,
        "transformers_version": "4.20.0",
        "unk_token_id": 0,
        "use_cache": True,
        "vocab_size": 250880,
    },
    f"""
    word_embeddings.weight 250880 1024
    {norms("", 1024, "word_embeddings_layernorm", "ln_f")}
    {linear(_BLOOM + "self_attention.query_key_value", 3072, 1024)}
    {linear(_BLOOM + "self_attention.dense", 1024, 1024)}
    {linear(_BLOOM + "mlp.dense_h_to_4h", 4096, 1024)}
    {linear(_BLOOM + "mlp.dense_4h_to_h", 1024, 4096)}
    {norms(_BLOOM, 1024, "input_layernorm", "post_attention_layernorm")}
    """,
    "F16",
)

GPT_LIKE = (
    GPT2,
    DISTILGPT2,
    PYTHIA,
    GPT_NEO,
    GPT_J,
    CODEGEN,
    OPT_125M,
    OPT_350M,
    BLOOM,
)
