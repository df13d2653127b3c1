"""Hold a model against the layout of its family, from config.json and tensor headers alone.

Every layer is looked at: in mixed models the first layers have a plain MLP and experts come later,
so layer 0 says nothing about the rest.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from app.domain.architectures.layout import MlpDimensions, MlpLayout, TensorNames
from app.domain.architectures.table import (
    ENCODER_DECODERS,
    ENCODERS,
    find_layout,
    layout_model_types,
)
from app.domain.errors import Finding
from app.domain.models import ModelFacts, TensorFact

FLOAT_DTYPES = frozenset({"F64", "F32", "F16", "BF16"})

# Config keys by which families announce routed experts; any of them above zero means MoE.
_EXPERT_FIELDS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_EXPERT_NAMES = (".experts.", ".block_sparse_moe.", ".moe.")
_MAX_NAMED = 5
# Enough to see the pattern of a damaged checkpoint; a full list could run to thousands.
_MAX_FINDINGS = 20


@dataclass(frozen=True, slots=True)
class _Model:
    """A model with the layout of its family, its dimensions, and how its files name things."""

    tensors: Mapping[str, TensorFact]
    layout: MlpLayout
    dimensions: MlpDimensions
    names: TensorNames


def check_mlps(facts: ModelFacts, *, resizes: bool = True) -> tuple[Finding, ...]:
    """Say why the MLPs of a model cannot be edited; empty when every layer fits its layout.

    Looks at config.json and the tensor headers only. A cause that explains the rest (adapter,
    quantised, experts, unknown family, fixed width) is reported alone. `resizes` says whether
    neurons are to be removed, and not only zeroed or scaled.
    """
    layout = find_layout(facts.model_type)
    cause = _adapter(facts) or _quantized(facts) or _experts(facts) or _unknown_family(facts)
    if cause is None and layout is not None and resizes and not layout.is_resizable:
        cause = _fixed_width(facts.model_type)
    if cause or layout is None:
        return (cause,) if cause else ()
    return _checked(facts, layout)


def check_diagnosis(facts: ModelFacts) -> tuple[Finding, ...]:
    """Say why a model cannot be measured; empty when it can.

    As `check_mlps`, for jobs that change nothing: models with experts pass if their family has a
    layout, and so do those of fixed width.
    """
    layout = find_layout(facts.model_type)
    cause = _adapter(facts) or _quantized(facts)
    if layout is None:
        cause = cause or _unknown_family(facts, diagnosis=True)
    elif layout.is_editable:
        cause = cause or _experts(facts)
    if cause or layout is None:
        return (cause,) if cause else ()
    return _checked(facts, layout)


def _checked(facts: ModelFacts, layout: MlpLayout) -> tuple[Finding, ...]:
    try:
        dimensions = layout.dimensions(facts.config)
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        return (_finding("checkpoint_inconsistent", f"{exc}; repair the file and try again."),)
    if dimensions.layers > len(facts.tensors):
        # Looking for each of 10**9 layers would take hours and all memory.
        message = (
            f"config.json says `{layout.layers_fields[0]}` is {dimensions.layers}, but the files "
            f"hold {len(facts.tensors)} tensors in all; repair config.json or complete the files."
        )
        return (_finding("checkpoint_inconsistent", message),)
    model = _Model(facts.tensors, layout, dimensions, layout.tensor_names(facts.tensors))
    findings = _projection_findings(model) if layout.is_editable else _layer_findings(model)
    return tuple(islice(findings, _MAX_FINDINGS))


def _adapter(facts: ModelFacts) -> Finding | None:
    names = {file.path for file in facts.files}
    only_adapter = facts.tensors and all("lora_" in name for name in facts.tensors)
    has_adapter_file = "adapter_config.json" in names and not facts.tensors
    if not (only_adapter or has_adapter_file or "peft_type" in facts.config):
        return None
    message = "The checkpoint holds adapter weights only; merge the adapter into its base first."
    return _finding("adapter_checkpoint", message)


def _quantized(facts: ModelFacts) -> Finding | None:
    if not any(part.get("quantization_config") for part in _config_parts(facts.config)):
        return None
    message = "config.json has a `quantization_config`; use the unquantised checkpoint."
    return _finding("quantized_checkpoint", message)


def _config_parts(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Give the config and, of a multimodal model, the part about its language model."""
    nested = config.get("text_config")
    return [config, nested] if isinstance(nested, Mapping) else [config]


def _experts(facts: ModelFacts) -> Finding | None:
    announced = [
        f"`{name}`"
        for part in _config_parts(facts.config)
        for name in _EXPERT_FIELDS
        if isinstance(part.get(name), int) and part[name] > 0
    ]
    layers = sorted({layer for layer in map(_expert_layer, facts.tensors) if layer is not None})
    layout = find_layout(facts.model_type)
    is_family = layout is not None and not layout.is_editable
    if not announced and not layers and not is_family:
        return None
    where = f"all of model_type `{facts.model_type}` do"
    if layers or announced:
        where = f"layers {_listed(layers)}" if layers else f"config.json has {', '.join(announced)}"
    message = (
        f"The model routes tokens to experts ({where}); only models with one plain MLP "
        "in every layer can be edited."
    )
    return _finding("unsupported_mlp", message)


def _expert_layer(tensor: str) -> int | None:
    if not any(part in tensor for part in _EXPERT_NAMES):
        return None
    return next((int(part) for part in tensor.split(".") if part.isdecimal()), None)


def _unknown_family(facts: ModelFacts, *, diagnosis: bool = False) -> Finding | None:
    if find_layout(facts.model_type) is not None:
        return None
    named = f"model_type `{facts.model_type}`" if facts.model_type else "A model without model_type"
    if facts.model_type in ENCODER_DECODERS or facts.config.get("is_encoder_decoder") is True:
        reason = f"{named} is an encoder-decoder, not a decoder language model"
    elif facts.model_type in ENCODERS:
        reason = f"{named} is an encoder, not a decoder language model"
    else:
        reason = f"{named} is not supported"
    known = ", ".join(layout_model_types(with_experts=diagnosis))
    return _finding("unsupported_architecture", f"{reason}; supported: {known}.")


def _fixed_width(model_type: str) -> Finding:
    message = (
        f"The number of neurons is fixed in the code of model_type `{model_type}`, so a model with "
        "fewer could not be loaded; choose mode `zero` or `scale`."
    )
    return _finding("unsupported_mlp", message)


def _projection_findings(model: _Model) -> Iterator[Finding]:
    missing: dict[str, list[int]] = {}
    for layer in range(model.dimensions.layers):
        for projection in model.layout.projections:
            name = model.names.weight(layer, projection)
            weight = model.tensors.get(name)
            if weight is None:
                missing.setdefault(projection.module, []).append(layer)
                continue
            yield from _tensor_findings(name, weight, projection.weight_shape(model.dimensions))
            bias = model.names.bias(layer, projection)
            if bias in model.tensors:
                shape = projection.bias_shape(model.dimensions)
                yield from _tensor_findings(bias, model.tensors[bias], shape)
    yield from _missing_findings(missing, model)
    yield from _bias_findings(model)
    yield from _foreign_findings(model)
    modules = [projection.module for projection in model.layout.projections]
    yield from _surplus_layers(model, modules)


def _layer_findings(model: _Model) -> Iterator[Finding]:
    """Look for every layer of a family without projections, and for weights of other types."""
    packed = next((n for n, t in model.tensors.items() if t.dtype not in FLOAT_DTYPES), None)
    if packed is not None:
        yield from _tensor_findings(packed, model.tensors[packed], ())
    norm = model.layout.input_norm[0]
    for layer in range(model.dimensions.layers):
        name = model.names.tensor(layer, f"{norm}.weight")
        if name not in model.tensors:
            message = f"`{name}` is missing; the files are incomplete or of another architecture."
            yield _finding("checkpoint_inconsistent", message)
        else:
            yield from _tensor_findings(name, model.tensors[name], (model.dimensions.hidden,))
    yield from _surplus_layers(model, [norm])


def _tensor_findings(name: str, tensor: TensorFact, shape: tuple[int, ...]) -> Iterator[Finding]:
    if tensor.dtype not in FLOAT_DTYPES:
        message = f"`{name}` is stored as {tensor.dtype}; use a checkpoint with float weights."
        yield _finding("quantized_checkpoint", message)
    elif tensor.shape != shape:
        message = (
            f"`{name}` has shape {list(tensor.shape)}, config.json says {list(shape)}; "
            "weights and config are not of the same model."
        )
        yield _finding("checkpoint_inconsistent", message)


def _missing_findings(missing: Mapping[str, list[int]], model: _Model) -> Iterator[Finding]:
    for module, layers in missing.items():
        tensor = model.names.tensor(layers[0], f"{module}.weight")
        if len(layers) == model.dimensions.layers:
            message = f"No layer has the projection `{module}` (first missing: `{tensor}`)."
            yield _finding("unsupported_mlp", message)
        else:
            message = f"`{tensor}` is missing (layers {_listed(layers)}); the files are incomplete."
            yield _finding("checkpoint_inconsistent", message)


def _bias_findings(model: _Model) -> Iterator[Finding]:
    """Demand each bias in all layers or in none: a config has one switch for all."""
    layers = range(model.dimensions.layers)
    for projection in model.layout.projections:
        present = [model.names.bias(n, projection) in model.tensors for n in layers]
        if any(present) and not all(present):
            tensor = model.names.bias(present.index(False), projection)
            message = f"`{tensor}` is missing while other layers have it; files are incomplete."
            yield _finding("checkpoint_inconsistent", message)


def _foreign_findings(model: _Model) -> Iterator[Finding]:
    """Name the MLP weights that the family does not have: a gate that the edit would not cut."""
    modules = {projection.module for projection in model.layout.projections}
    parents = {parent for module in modules if (parent := module.rpartition(".")[0])}
    if not parents:
        return
    before, after = map(re.escape, model.names.layer_prefix.split("{layer}"))
    inside = "|".join(map(re.escape, sorted(parents)))
    pattern = re.compile(rf"{before}(\d+){after}\.((?:{inside})\..+)\.(?:weight|bias)")
    layers: dict[str, list[int]] = {}
    for match in filter(None, map(pattern.fullmatch, model.tensors)):
        if match[2] not in modules:
            layers.setdefault(match[2], []).append(int(match[1]))
    for module, found in layers.items():
        message = (
            f"The family has no `{module}`, but layers {_listed(sorted(set(found)))} have one; "
            "weights and config are not of the same model."
        )
        yield _finding("unsupported_mlp", message)


def _surplus_layers(model: _Model, modules: list[str]) -> Iterator[Finding]:
    for module in modules:
        surplus = model.names.tensor(model.dimensions.layers, f"{module}.weight")
        if surplus in model.tensors:
            message = f"`{surplus}` exists, but config.json has {model.dimensions.layers} layers."
            yield _finding("checkpoint_inconsistent", message)


def _listed(layers: list[int]) -> str:
    named = ", ".join(map(str, layers[:_MAX_NAMED]))
    return named if len(layers) <= _MAX_NAMED else f"{named} and {len(layers) - _MAX_NAMED} more"


def _finding(code: str, message: str) -> Finding:
    return Finding(pointer="/model", code=code, message=message)
