"""The decoder families, one row for those that name things alike (transformers 5.24).

tests/integration/test_architectures.py builds, edits and reloads a model of every row.
"""

from app.domain.architectures.layout import MlpLayout, Projection

_GATED = (
    Projection("mlp.gate_proj", ("gate",), 0),
    Projection("mlp.up_proj", ("up",), 0),
    Projection("mlp.down_proj", ("down",), 1),
)
_FUSED = (
    Projection("mlp.gate_up_proj", ("gate", "up"), 0),
    Projection("mlp.down_proj", ("down",), 1),
)


def _plain(up: str, down: str) -> tuple[Projection, ...]:
    """Name the two maps of an MLP without a gate."""
    return (Projection(up, ("up",), 0), Projection(down, ("down",), 1))


_GPT_LAYERS = ("n_layer", "num_hidden_layers")
_GPT_HIDDEN = ("n_embd", "hidden_size")
_GPT_POSITIONS = ("n_positions", "max_position_embeddings")

LAYOUTS: tuple[MlpLayout, ...] = (
    MlpLayout(
        model_types=(
            "llama",
            "mistral",
            "qwen2",
            "qwen3",
            "gemma",
            "gemma2",
            "gemma3_text",
            "smollm3",
            "stablelm",
            "olmo",
            "granite",
            "cohere",
            "cohere2",
        ),
        projections=_GATED,
    ),
    # Norms after attention and MLP only.
    MlpLayout(model_types=("olmo2",), projections=_GATED, input_norm=()),
    # A language model beside a vision tower, whose own `mlp.fc1` no prefix here can match. The
    # library writes the first of the stored prefixes, and reads all three.
    MlpLayout(
        model_types=("gemma3",),
        projections=_GATED,
        layer_prefix="model.language_model.layers.{layer}",
        stored_prefixes=("language_model.model.layers.{layer}",),
        config_section=("text_config",),
    ),
    MlpLayout(model_types=("phi3", "glm", "glm4"), projections=_FUSED),
    # Conv1D: the weight is stored as (in, out), so that neurons lie on the other axis.
    MlpLayout(
        model_types=("gpt2",),
        projections=(
            Projection("mlp.c_fc", ("up",), 1),
            Projection("mlp.c_proj", ("down",), 0),
        ),
        layer_prefix="transformer.h.{layer}",
        attention="attn",
        input_norm=("ln_1",),
        layers_fields=_GPT_LAYERS,
        hidden_fields=_GPT_HIDDEN,
        size_field="n_inner",
        default_expansion=4,
        positions_fields=_GPT_POSITIONS,
    ),
    MlpLayout(
        model_types=("gpt_bigcode",),
        projections=_plain("mlp.c_fc", "mlp.c_proj"),
        layer_prefix="transformer.h.{layer}",
        attention="attn",
        input_norm=("ln_1",),
        layers_fields=_GPT_LAYERS,
        hidden_fields=_GPT_HIDDEN,
        size_field="n_inner",
        default_expansion=4,
        positions_fields=_GPT_POSITIONS,
    ),
    MlpLayout(
        model_types=("gpt_neo",),
        projections=_plain("mlp.c_fc", "mlp.c_proj"),
        layer_prefix="transformer.h.{layer}",
        attention="attn",
        input_norm=("ln_1",),
        layers_fields=("num_layers", "num_hidden_layers"),
        default_expansion=4,
    ),
    MlpLayout(
        model_types=("gptj", "codegen"),
        projections=_plain("mlp.fc_in", "mlp.fc_out"),
        layer_prefix="transformer.h.{layer}",
        attention="attn",
        input_norm=("ln_1",),
        layers_fields=_GPT_LAYERS,
        hidden_fields=_GPT_HIDDEN,
        size_field="n_inner",
        default_expansion=4,
        positions_fields=_GPT_POSITIONS,
    ),
    MlpLayout(
        model_types=("gpt_neox",),
        projections=_plain("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
        layer_prefix="gpt_neox.layers.{layer}",
        attention="attention",
    ),
    # The 40B and 180B models have one norm for attention and one for the MLP, side by side.
    MlpLayout(
        model_types=("falcon",),
        projections=_plain("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
        layer_prefix="transformer.h.{layer}",
        attention="self_attention",
        input_norm=("ln_attn", "input_layernorm"),
        hidden_fields=("hidden_size", "n_embed"),
        size_field="ffn_hidden_size",
        default_expansion=4,
    ),
    # The projections sit on the layer itself. The 350M model has its norms after the blocks.
    MlpLayout(
        model_types=("opt",),
        projections=_plain("fc1", "fc2"),
        layer_prefix="model.decoder.layers.{layer}",
        input_norm=("self_attn_layer_norm",),
        postponed_norm=("do_layer_norm_before", False),
        mlp=None,
        size_field="ffn_dim",
    ),
    MlpLayout(model_types=("phi",), projections=_plain("mlp.fc1", "mlp.fc2")),
    MlpLayout(model_types=("starcoder2",), projections=_plain("mlp.c_fc", "mlp.c_proj")),
    # Looks like a gated MLP by its names, but has no gate.
    MlpLayout(model_types=("nemotron",), projections=_plain("mlp.up_proj", "mlp.down_proj")),
    # bloom and mpt: the class fixes 4H neurons, and adds the residual inside its MLP module (bloom
    # inside attention too), so outputs are read from the projections.
    MlpLayout(
        model_types=("bloom",),
        projections=_plain("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
        layer_prefix="transformer.h.{layer}",
        attention="self_attention.dense",
        mlp=None,
        layers_fields=_GPT_LAYERS,
        hidden_fields=("hidden_size", "n_embed"),
        size_field=None,
        default_expansion=4,
        positions_fields=("seq_length",),
    ),
    MlpLayout(
        model_types=("mpt",),
        projections=_plain("ffn.up_proj", "ffn.down_proj"),
        layer_prefix="transformer.blocks.{layer}",
        attention="attn",
        input_norm=("norm_1",),
        mlp=None,
        layers_fields=("n_layers", "num_hidden_layers"),
        hidden_fields=("d_model", "hidden_size"),
        size_field=None,
        default_expansion=4,
        positions_fields=("max_seq_len",),
    ),
    # Experts: measured from outside, never edited.
    MlpLayout(
        model_types=(
            "mixtral",
            "qwen2_moe",
            "qwen3_moe",
            "deepseek_v2",
            "deepseek_v3",
            "gpt_oss",
        ),
        projections=(),
    ),
)

# Models that are no decoder language model, by what they are: for the reason of a refusal.
# fmt: off
ENCODERS = frozenset({
    "albert", "bert", "camembert", "clip", "deberta", "deberta-v2", "distilbert", "electra",
    "ernie", "esm", "eurobert", "flaubert", "longformer", "modernbert", "mpnet", "nomic_bert",
    "roberta", "siglip", "vit", "xlm", "xlm-roberta", "xlm-roberta-xl", "xlnet",
})
ENCODER_DECODERS = frozenset({
    "bart", "blenderbot", "led", "longt5", "m2m_100", "marian", "mbart", "mt5", "pegasus", "t5",
    "t5gemma", "umt5", "whisper",
})
# fmt: on


def find_layout(model_type: str) -> MlpLayout | None:
    """Find the layout of a family; None when there is no row for it.

    Families of experts have one too, in which `is_editable` is false.
    """
    return next((row for row in LAYOUTS if model_type in row.model_types), None)


def layout_model_types(*, with_experts: bool = False) -> tuple[str, ...]:
    """Every `model_type` whose MLPs can be edited, in table order.

    `with_experts` adds the families of experts, which can be measured but not edited.
    """
    rows = [row for row in LAYOUTS if with_experts or row.is_editable]
    return tuple(name for row in rows for name in row.model_types)
