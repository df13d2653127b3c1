"""Which model families can be exported to GGUF, and under which settings: data, no library.

A GGUF file names an architecture, and its readers bring the arithmetic for that name: activation,
scaling and masks are theirs and not in the file. So a family is exportable only where config.json
asks for the arithmetic that the readers have. The settings below are those of llama.cpp.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from app.domain.errors import Finding
from app.domain.models import ModelFacts

POINTER = "/outputs/formats"

# Tanh approximation of GELU, under each name that the library gives to it.
_GELU_TANH = ("gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_accurate")
_SILU = ("silu", "swish")
_PLAIN_ROPE = ("default",)
_MAX_SHOWN = 80
_SCALED_ROPE = ("default", "linear", "llama3")
# Lengths are written with 32 bits, whatever the weights are; all else in single precision.
_LENGTHS = ("max_position_embeddings", "n_positions", "sliding_window")
_LENGTH_LIMIT = 2**32
_LARGEST_SINGLE = (2 - 2**-23) * 2.0**127


@dataclass(frozen=True, slots=True)
class Setting:
    """A field of config.json that must have one of `allowed`; left out, it counts as the first."""

    field: str
    allowed: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class GgufFamily:
    """One `model_type` and the architecture that GGUF readers know it as.

    Attributes
    ----------
    settings
        What the readers' arithmetic takes for granted.
    ropes
        Kinds of rotary embedding that the file can describe (empty: the family has none).
    heads_span_hidden
        Whether readers expect the heads together to be as wide as the hidden size.
    tied_only
        Whether readers always use the embedding as output head.
    scale_layers
        For families with `query_pre_attn_scalar`: the number of layers at which readers scale by
        hidden size over heads; at any other number they scale by the head size.
    window_pattern
        Every how many layers one attends without a window, as readers have it; 0 for no windows.
    ignores_window
        Whether readers attend to everything although config.json may set a window.
    """

    model_type: str
    architecture: str
    settings: tuple[Setting, ...]
    ropes: tuple[str, ...] = _PLAIN_ROPE
    heads_span_hidden: bool = False
    tied_only: bool = False
    scale_layers: int | None = None
    window_pattern: int = 0
    ignores_window: bool = False


GGUF_FAMILIES: tuple[GgufFamily, ...] = (
    GgufFamily("llama", "llama", (Setting("hidden_act", _SILU),), _SCALED_ROPE),
    GgufFamily(
        "mistral", "llama", (Setting("hidden_act", _SILU),), _SCALED_ROPE, ignores_window=True
    ),
    GgufFamily(
        "qwen2",
        "qwen2",
        (Setting("hidden_act", _SILU), Setting("use_sliding_window", (False,))),
        heads_span_hidden=True,
    ),
    GgufFamily(
        "qwen3",
        "qwen3",
        (
            Setting("hidden_act", _SILU),
            Setting("use_sliding_window", (False,)),
            Setting("attention_bias", (False,)),
        ),
    ),
    GgufFamily(
        "gemma",
        "gemma",
        # Old files name the exact GELU here; the library ran the approximation all the same.
        (Setting("hidden_act", (*_GELU_TANH, "gelu")), Setting("attention_bias", (False,))),
        tied_only=True,
    ),
    GgufFamily(
        "gemma2",
        "gemma2",
        (Setting("hidden_activation", _GELU_TANH), Setting("attention_bias", (False,))),
        tied_only=True,
        scale_layers=46,
        window_pattern=2,
    ),
    GgufFamily(
        "gemma3_text",
        "gemma3",
        (
            Setting("hidden_activation", _GELU_TANH),
            Setting("attention_bias", (False,)),
            Setting("use_bidirectional_attention", (False, None)),
            Setting("attn_logit_softcapping", (None,)),
        ),
        ("default", "linear"),
        scale_layers=62,
        window_pattern=6,
    ),
    GgufFamily(
        "phi3",
        "phi3",
        (Setting("hidden_act", _SILU),),
        heads_span_hidden=True,
        ignores_window=True,
    ),
    GgufFamily(
        "gpt2",
        "gpt2",
        (
            Setting("activation_function", _GELU_TANH),
            Setting("scale_attn_weights", (True,)),
            Setting("scale_attn_by_inverse_layer_idx", (False,)),
            Setting("add_cross_attention", (False,)),
        ),
        (),
    ),
    GgufFamily(
        "starcoder2",
        "starcoder2",
        (Setting("hidden_act", _GELU_TANH), Setting("use_bias", (True,))),
        heads_span_hidden=True,
        ignores_window=True,
    ),
    GgufFamily(
        "stablelm",
        "stablelm",
        (
            Setting("hidden_act", _SILU),
            Setting("qk_layernorm", (False,)),
            Setting("use_parallel_residual", (False,)),
        ),
        heads_span_hidden=True,
    ),
    GgufFamily(
        "nemotron",
        "nemotron",
        (Setting("hidden_act", ("relu2",)),),
        heads_span_hidden=True,
    ),
    GgufFamily(
        "olmo2",
        "olmo2",
        (Setting("hidden_act", _SILU), Setting("attention_bias", (False,))),
        heads_span_hidden=True,
    ),
    GgufFamily("granite", "granite", (Setting("hidden_act", _SILU),)),
)


def find_gguf_family(model_type: str) -> GgufFamily | None:
    """Find the row of a `model_type`; None when it cannot be exported."""
    return next((row for row in GGUF_FAMILIES if row.model_type == model_type), None)


def gguf_findings(facts: ModelFacts) -> tuple[Finding, ...]:
    """Say why a model cannot be exported to GGUF, as far as all but the weights tells."""
    family = find_gguf_family(facts.model_type)
    if family is None:
        known = ", ".join(row.model_type for row in GGUF_FAMILIES)
        message = (
            f"Models of type {_shown(facts.model_type)} cannot be exported to GGUF; "
            f"exportable: {known}."
        )
        return (Finding(POINTER, "gguf_unsupported_architecture", message),)
    reasons = [
        *_tokenizer_reasons(facts),
        *_setting_reasons(facts.config, family),
        *_rope_reasons(facts.config, family),
        *_shape_reasons(facts, family),
        *_window_reasons(facts.config, family),
        *_number_reasons(facts.config),
    ]
    return tuple(
        Finding(POINTER, "gguf_unsupported_config", f"{reason} Leave gguf out of the formats.")
        for reason in reasons
    )


def _tokenizer_reasons(facts: ModelFacts) -> Iterator[str]:
    if facts.gguf_obstacle is None:
        yield "The model has no tokenizer.json, whose content the file must hold."
        return
    obstacle = facts.gguf_obstacle()
    if obstacle is not None:
        yield f"The tokenizer cannot be written to GGUF: {obstacle}."


def gguf_warnings(facts: ModelFacts) -> tuple[str, ...]:
    """Say what a reader of the exported file will do otherwise than the library does."""
    family = find_gguf_family(facts.model_type)
    window = facts.config.get("sliding_window")
    length = facts.config.get("max_position_embeddings")
    if family is None or not family.ignores_window or not isinstance(window, int):
        return ()
    if isinstance(length, int) and length <= window:
        return ()
    return (
        f"config.json limits attention to a window of {window} tokens; readers of the GGUF file "
        "attend to the whole text, so longer texts will give other results there.",
    )


def rope_kind(config: Mapping[str, Any]) -> str:
    """Name the kind of rotary embedding that config.json asks for, in either of its spellings."""
    for field in ("rope_parameters", "rope_scaling"):
        section = config.get(field)
        if isinstance(section, Mapping):
            full = section.get("full_attention")
            section = full if isinstance(full, Mapping) else section
            kind = section.get("rope_type", section.get("type"))
            if kind is not None:
                return str(kind)
    return "default"


def _setting_reasons(config: Mapping[str, Any], family: GgufFamily) -> Iterator[str]:
    for setting in family.settings:
        value = config.get(setting.field, setting.allowed[0])
        # Null stands for the default of the library's class.
        if value is not None and value not in setting.allowed:
            shown = " or ".join(repr(choice) for choice in setting.allowed)
            yield (
                f"config.json has `{setting.field}` {_shown(value)}; readers of GGUF compute "
                f"{family.architecture} with {shown}."
            )


def _shown(value: object) -> str:
    """Repeat a value of a stranger's config, at a length that a message can bear."""
    return repr(value)[:_MAX_SHOWN]


def _rope_reasons(config: Mapping[str, Any], family: GgufFamily) -> Iterator[str]:
    kind = rope_kind(config)
    if family.ropes and kind not in family.ropes:
        shown = ", ".join(family.ropes)
        yield f"Rotary embeddings of kind {_shown(kind)} cannot be exported here (only {shown})."


def _shape_reasons(facts: ModelFacts, family: GgufFamily) -> Iterator[str]:
    config = facts.config
    hidden, heads = config.get("hidden_size"), config.get("num_attention_heads")
    head_dim = config.get("head_dim")
    if not isinstance(hidden, int) or not isinstance(heads, int) or heads < 1:
        return
    if type(head_dim) is not int:
        head_dim = _default_head_dim(family, hidden // heads)
    if family.heads_span_hidden and head_dim * heads != hidden:
        yield (
            f"{heads} heads of {head_dim} are not the hidden size {hidden}, which readers of GGUF "
            f"expect of {family.architecture}."
        )
    if family.tied_only and "lm_head.weight" in facts.tensors and _is_untied(config):
        yield f"The output head is not tied, as readers of GGUF expect of {family.architecture}."
    if family.scale_layers is not None:
        by_hidden = config.get("num_hidden_layers") == family.scale_layers
        expected = hidden // heads if by_hidden else head_dim
        scalar = config.get("query_pre_attn_scalar", 256)
        if scalar != expected:
            yield (
                f"config.json has `query_pre_attn_scalar` {_shown(scalar)}; readers of GGUF "
                f"compute with {expected}."
            )


def _default_head_dim(family: GgufFamily, derived: int) -> int:
    return 256 if family.model_type.startswith("gemma") else derived


def _is_untied(config: Mapping[str, Any]) -> bool:
    return config.get("tie_word_embeddings") is False


def _window_reasons(config: Mapping[str, Any], family: GgufFamily) -> Iterator[str]:
    kinds = config.get("layer_types")
    if not family.window_pattern or not isinstance(kinds, list):
        return
    expected = [
        "full_attention" if (layer + 1) % family.window_pattern == 0 else "sliding_attention"
        for layer in range(len(kinds))
    ]
    if kinds != expected:
        yield (
            "config.json has `layer_types` in another order than readers of GGUF, where every "
            f"layer number {family.window_pattern} attends without a window."
        )


def _number_reasons(config: Mapping[str, Any]) -> Iterator[str]:
    for field in _LENGTHS:
        value = config.get(field)
        if type(value) is int and not 0 <= value < _LENGTH_LIMIT:
            yield f"config.json has `{field}` {_shown(value)}, which a GGUF file cannot hold."
    for field, value in _numbers(config):
        if field not in _LENGTHS and abs(value) > _LARGEST_SINGLE:
            yield f"config.json has `{field}` {_shown(value)}, which a GGUF file cannot hold."


def _numbers(section: Mapping[str, Any]) -> Iterator[tuple[str, int | float]]:
    for field, value in section.items():
        if type(value) in (int, float):
            yield field, value
        elif isinstance(value, Mapping):
            yield from _numbers(value)
