"""Later models with a plain MLP: MPT, Falcon, StarCoder, Phi, Nemotron."""

from typing import Any

from tests.hub_models.headers import HubModel, linear, norms

_MPT = "transformer.blocks.{0-31}."
MPT = HubModel(
    "mosaicml/mpt-7b",
    {
        "architectures": ["MPTForCausalLM"],
        "attn_config": {
            "alibi": True,
            "alibi_bias_max": 8,
            "attn_impl": "torch",
            "attn_pdrop": 0,
            "attn_type": "multihead_attention",
            "attn_uses_sequence_id": False,
            "clip_qkv": None,
            "prefix_lm": False,
            "qk_ln": False,
            "softmax_scale": None,
        },
        "auto_map": {
            "AutoConfig": "configuration_mpt.MPTConfig",
            "AutoModelForCausalLM": "modeling_mpt.MPTForCausalLM",
        },
        "d_model": 4096,
        "emb_pdrop": 0,
        "embedding_fraction": 1.0,
        "expansion_ratio": 4,
        "init_config": {
            "emb_init_std": None,
            "emb_init_uniform_lim": None,
            "fan_mode": "fan_in",
            "init_div_is_residual": True,
            "init_gain": 0,
            "init_nonlinearity": "relu",
            "init_std": 0.02,
            "name": "kaiming_normal_",
            "verbose": 0,
        },
        "init_device": "cpu",
        "learned_pos_emb": True,
        "logit_scale": None,
        "max_seq_len": 2048,
        "model_type": "mpt",
        "n_heads": 32,
        "n_layers": 32,
        "no_bias": True,
        "norm_type": "low_precision_layernorm",
        "resid_pdrop": 0,
        "tokenizer_name": "EleutherAI/gpt-neox-20b",
        "torch_dtype": "bfloat16",
        "transformers_version": "4.28.1",
        "use_cache": False,
        "verbose": 0,
        "vocab_size": 50432,
    },
    f"""
    transformer.wte.weight 50432 4096
    {_MPT}norm_1.weight 4096
    {_MPT}attn.Wqkv.weight 12288 4096
    {_MPT}attn.out_proj.weight 4096 4096
    {_MPT}norm_2.weight 4096
    {_MPT}ffn.up_proj.weight 16384 4096
    {_MPT}ffn.down_proj.weight 4096 16384
    transformer.norm_f.weight 4096
    """,
    "BF16",
    shards=2,
)

_FALCON: dict[str, Any] = {
    "alibi": False,
    "apply_residual_connection_post_layernorm": False,
    "architectures": ["FalconForCausalLM"],
    "attention_dropout": 0.0,
    "auto_map": {
        "AutoConfig": "configuration_falcon.FalconConfig",
        "AutoModel": "modeling_falcon.FalconModel",
        "AutoModelForSequenceClassification": "modeling_falcon.FalconForSequenceClassification",
        "AutoModelForCausalLM": "modeling_falcon.FalconForCausalLM",
    },
    "bias": False,
    "bos_token_id": 11,
    "eos_token_id": 11,
    "hidden_dropout": 0.0,
    "hidden_size": 4544,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "model_type": "falcon",
    "multi_query": True,
    "new_decoder_architecture": False,
    "num_attention_heads": 71,
    "num_hidden_layers": 32,
    "parallel_attn": True,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.27.4",
    "use_cache": True,
    "vocab_size": 65024,
}
_F7 = "transformer.h.{0-31}."
FALCON_7B = HubModel(
    "tiiuae/falcon-7b",
    _FALCON,
    f"""
    transformer.word_embeddings.weight 65024 4544
    {norms(_F7, 4544, "input_layernorm")}
    {_F7}self_attention.query_key_value.weight 4672 4544
    {_F7}self_attention.dense.weight 4544 4544
    {_F7}mlp.dense_h_to_4h.weight 18176 4544
    {_F7}mlp.dense_4h_to_h.weight 4544 18176
    {norms("transformer.", 4544, "ln_f")}
    lm_head.weight 65024 4544
    """,
    "BF16",
    shards=2,
)
_RW = "transformer.h.{0-23}."
FALCON_RW = HubModel(
    "tiiuae/falcon-rw-1b",
    {
        **_FALCON,
        "alibi": True,
        "bias": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_size": 2048,
        "multi_query": False,
        "num_attention_heads": 32,
        "num_hidden_layers": 24,
        "parallel_attn": False,
        "vocab_size": 50304,
    },
    f"""
    transformer.word_embeddings.weight 50304 2048
    {norms(_RW, 2048, "input_layernorm", "post_attention_layernorm")}
    {linear(_RW + "self_attention.query_key_value", 6144, 2048)}
    {linear(_RW + "self_attention.dense", 2048, 2048)}
    {linear(_RW + "mlp.dense_h_to_4h", 8192, 2048)}
    {linear(_RW + "mlp.dense_4h_to_h", 2048, 8192)}
    {norms("transformer.", 2048, "ln_f")}
    lm_head.weight 50304 2048
    """,
    "BF16",
)
# The 40B model: eight key-value heads, and a norm each for attention and MLP.
_F40 = "transformer.h.{0-59}."
FALCON_40B = HubModel(
    "tiiuae/falcon-40b",
    {
        **{k: v for k, v in _FALCON.items() if k != "multi_query"},
        "hidden_size": 8192,
        "new_decoder_architecture": True,
        "num_attention_heads": 128,
        "num_hidden_layers": 60,
        "num_kv_heads": 8,
    },
    f"""
    transformer.word_embeddings.weight 65024 8192
    {norms(_F40, 8192, "ln_attn", "ln_mlp")}
    {_F40}self_attention.query_key_value.weight 9216 8192
    {_F40}self_attention.dense.weight 8192 8192
    {_F40}mlp.dense_h_to_4h.weight 32768 8192
    {_F40}mlp.dense_4h_to_h.weight 8192 32768
    {norms("transformer.", 8192, "ln_f")}
    lm_head.weight 65024 8192
    """,
    "BF16",
    shards=9,
)

_STAR = "model.layers.{0-29}."
STARCODER2 = HubModel(
    "bigcode/starcoder2-3b",
    {
        "architectures": ["Starcoder2ForCausalLM"],
        "attention_dropout": 0.1,
        "bos_token_id": 0,
        "embedding_dropout": 0.1,
        "eos_token_id": 0,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_size": 3072,
        "initializer_range": 0.018042,
        "intermediate_size": 12288,
        "layer_norm_epsilon": 1e-05,
        "max_position_embeddings": 16384,
        "mlp_type": "default",
        "model_type": "starcoder2",
        "norm_epsilon": 1e-05,
        "norm_type": "layer_norm",
        "num_attention_heads": 24,
        "num_hidden_layers": 30,
        "num_key_value_heads": 2,
        "residual_dropout": 0.1,
        "rope_theta": 999999.4420358813,
        "sliding_window": 4096,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.37.0.dev0",
        "use_bias": True,
        "use_cache": True,
        "vocab_size": 49152,
    },
    f"""
    model.embed_tokens.weight 49152 3072
    {linear(_STAR + "self_attn.q_proj", 3072, 3072)}
    {linear(_STAR + "self_attn.k_proj", 256, 3072)}
    {linear(_STAR + "self_attn.v_proj", 256, 3072)}
    {linear(_STAR + "self_attn.o_proj", 3072, 3072)}
    {linear(_STAR + "mlp.c_fc", 12288, 3072)}
    {linear(_STAR + "mlp.c_proj", 3072, 12288)}
    {norms(_STAR, 3072, "input_layernorm", "post_attention_layernorm")}
    {norms("model.", 3072, "norm")}
    """,
    "BF16",
)
_SANTA = "transformer.h.{0-23}."
SANTACODER = HubModel(
    "bigcode/gpt_bigcode-santacoder",
    {
        "activation_function": "gelu_pytorch_tanh",
        "architectures": ["GPTBigCodeForCausalLM"],
        "attention_softmax_in_fp32": True,
        "attn_pdrop": 0.1,
        "bos_token_id": 49152,
        "embd_pdrop": 0.1,
        "eos_token_id": 49152,
        "inference_runner": 0,
        "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05,
        "max_batch_size": None,
        "max_sequence_length": None,
        "model_type": "gpt_bigcode",
        "multi_query": True,
        "n_embd": 2048,
        "n_head": 16,
        "n_inner": 8192,
        "n_layer": 24,
        "n_positions": 2048,
        "pad_key_length": True,
        "pre_allocate_kv_cache": False,
        "resid_pdrop": 0.1,
        "scale_attention_softmax_in_fp32": True,
        "scale_attn_weights": True,
        "summary_activation": None,
        "summary_type": "cls_index",
        "torch_dtype": "float32",
        "use_cache": True,
        "validate_runner_input": True,
        "vocab_size": 49280,
    },
    f"""
    transformer.wte.weight 49280 2048
    transformer.wpe.weight 2048 2048
    {linear(_SANTA + "attn.c_attn", 2304, 2048)}
    {linear(_SANTA + "attn.c_proj", 2048, 2048)}
    {linear(_SANTA + "mlp.c_fc", 8192, 2048)}
    {linear(_SANTA + "mlp.c_proj", 2048, 8192)}
    {norms(_SANTA, 2048, "ln_1", "ln_2")}
    {norms("transformer.", 2048, "ln_f")}
    lm_head.weight 49280 2048
    """,
    "F32",
)


def _phi(name: str, *, hidden: int, layers: int, shards: int, **config: Any) -> HubModel:
    prefix = f"model.layers.{{0-{layers - 1}}}."
    attention = "".join(
        linear(f"{prefix}self_attn.{part}", hidden, hidden)
        for part in ("q_proj", "k_proj", "v_proj", "dense")
    )
    return HubModel(
        name,
        {
            "architectures": ["PhiForCausalLM"],
            "attention_dropout": 0.0,
            "bos_token_id": None,
            "embd_pdrop": 0.0,
            "eos_token_id": None,
            "hidden_act": "gelu_new",
            "hidden_size": hidden,
            "initializer_range": 0.02,
            "intermediate_size": 4 * hidden,
            "layer_norm_eps": 1e-05,
            "max_position_embeddings": 2048,
            "model_type": "phi",
            "num_attention_heads": 32,
            "num_hidden_layers": layers,
            "num_key_value_heads": None,
            "partial_rotary_factor": 0.5,
            "qk_layernorm": False,
            "resid_pdrop": 0.0,
            "rope_scaling": None,
            "rope_theta": 10000.0,
            "tie_word_embeddings": False,
            "torch_dtype": "float16",
            "transformers_version": "4.37.0",
            "use_cache": True,
            "vocab_size": 51200,
            **config,
        },
        f"""
        model.embed_tokens.weight 51200 {hidden}
        {attention}
        {linear(prefix + "mlp.fc1", 4 * hidden, hidden)}
        {linear(prefix + "mlp.fc2", hidden, 4 * hidden)}
        {norms(prefix, hidden, "input_layernorm")}
        {norms("model.", hidden, "final_layernorm")}
        {linear("lm_head", 51200, hidden)}
        """,
        "F16",
        shards=shards,
    )


PHI_1_5 = _phi("microsoft/phi-1_5", hidden=2048, layers=24, shards=1)
PHI_2 = _phi(
    "microsoft/phi-2",
    hidden=2560,
    layers=32,
    shards=2,
    auto_map={
        "AutoConfig": "configuration_phi.PhiConfig",
        "AutoModelForCausalLM": "modeling_phi.PhiForCausalLM",
    },
)
_NEMOTRON = "model.layers.{0-31}."
MINITRON = HubModel(
    "nvidia/Minitron-4B-Base",
    {
        "architectures": ["NemotronForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 2,
        "eos_token_id": 3,
        "head_dim": 128,
        "hidden_act": "relu2",
        "hidden_size": 3072,
        "initializer_range": 0.0134,
        "intermediate_size": 9216,
        "max_position_embeddings": 4096,
        "mlp_bias": False,
        "model_type": "nemotron",
        "norm_eps": 1e-05,
        "num_attention_heads": 24,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "partial_rotary_factor": 0.5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.44.0",
        "use_cache": True,
        "vocab_size": 256000,
    },
    f"""
    model.embed_tokens.weight 256000 3072
    {_NEMOTRON}self_attn.q_proj.weight 3072 3072
    {_NEMOTRON}self_attn.k_proj.weight 1024 3072
    {_NEMOTRON}self_attn.v_proj.weight 1024 3072
    {_NEMOTRON}self_attn.o_proj.weight 3072 3072
    {_NEMOTRON}mlp.up_proj.weight 9216 3072
    {_NEMOTRON}mlp.down_proj.weight 3072 9216
    {norms(_NEMOTRON, 3072, "input_layernorm", "post_attention_layernorm")}
    {norms("model.", 3072, "norm")}
    lm_head.weight 256000 3072
    """,
    "BF16",
    shards=2,
)

PLAIN_MLP = (
    MPT,
    FALCON_7B,
    FALCON_RW,
    FALCON_40B,
    STARCODER2,
    SANTACODER,
    PHI_1_5,
    PHI_2,
    MINITRON,
)
