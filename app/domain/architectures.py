"""Where the MLP of each decoder family keeps its neurons: names, axes and config fields as data.

Neuron i of a layer is index i along the neuron axis of every projection of its MLP. The check
works on tensor headers alone and looks at every layer: in mixed models the first layers have a
plain MLP and experts come later, so layer 0 says nothing about the rest.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from app.domain.errors import Finding
from app.domain.models import ModelFacts, TensorFact

Role = Literal["gate", "up", "down"]

FLOAT_DTYPES = frozenset({"F64", "F32", "F16", "BF16"})

# Config keys by which families announce routed experts; any of them above zero means MoE.
_EXPERT_FIELDS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_EXPERT_NAMES = (".experts.", ".block_sparse_moe.", ".moe.")
_MAX_NAMED = 5
# Enough to see the pattern of a damaged checkpoint; a full list could run to thousands.
_MAX_FINDINGS = 20


@dataclass(frozen=True, slots=True)
class Projection:
    """One linear map of an MLP.

    `module` is its name inside the layer. `roles` lists what it computes, one equal block of
    neurons each, in storage order. `neuron_axis` is the axis of its weight along which neurons
    lie; a bias, where there is one, has neurons only if the projection does not lead back down.
    """

    module: str
    roles: tuple[Role, ...]
    neuron_axis: Literal[0, 1]

    @property
    def is_down(self) -> bool:
        """Whether it leads from the neurons back to the hidden size."""
        return self.roles == ("down",)

    def weight_shape(self, dimensions: "MlpDimensions") -> tuple[int, int]:
        """Shape of the weight in a model of these dimensions."""
        neurons = dimensions.neurons * len(self.roles)
        pair = (neurons, dimensions.hidden)
        return pair if self.neuron_axis == 0 else (pair[1], pair[0])

    def bias_shape(self, dimensions: "MlpDimensions") -> tuple[int]:
        """Shape of the bias, where there is one."""
        return (dimensions.hidden if self.is_down else dimensions.neurons * len(self.roles),)


@dataclass(frozen=True, slots=True)
class MlpDimensions:
    """Number of layers, hidden size H, and number of MLP neurons I of one layer."""

    layers: int
    hidden: int
    neurons: int


@dataclass(frozen=True, slots=True)
class MlpLayout:
    """Names and config fields of the families in `model_types`.

    `attention`, `input_norm` and `mlp` are module names inside a layer, None where the family
    has no such module. `config_section` is the path to the part of config.json that holds the
    three fields (empty: the top level).
    """

    model_types: tuple[str, ...]
    projections: tuple[Projection, ...]
    layer_prefix: str = "model.layers.{layer}"
    attention: str | None = "self_attn"
    input_norm: str | None = "input_layernorm"
    mlp: str | None = "mlp"
    layers_field: str = "num_hidden_layers"
    hidden_field: str = "hidden_size"
    size_field: str = "intermediate_size"
    config_section: tuple[str, ...] = ()

    def module(self, layer: int, relative: str) -> str:
        """Full name of the module `relative` of one layer, as in the loaded model."""
        return f"{self.layer_prefix.format(layer=layer)}.{relative}"

    def projection(self, role: Role) -> Projection | None:
        """Find the projection that computes `role`, or None (a plain MLP has no gate)."""
        return next((p for p in self.projections if role in p.roles), None)

    def weight(self, layer: int, projection: Projection) -> str:
        """Tensor name of a projection's weight."""
        return f"{self.module(layer, projection.module)}.weight"

    def bias(self, layer: int, projection: Projection) -> str:
        """Tensor name of a projection's bias, which a checkpoint may or may not have."""
        return f"{self.module(layer, projection.module)}.bias"

    def section(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Pick the part of config.json that holds the size fields."""
        part = config
        for key in self.config_section:
            part = part[key]
        return part

    def dimensions(self, config: Mapping[str, Any]) -> MlpDimensions:
        """Read the dimensions from config.json.

        Raises
        ------
        ValueError
            A field is missing or not a positive integer.
        """
        section = self.section(config)
        sizes = []
        for name in (self.layers_field, self.hidden_field, self.size_field):
            value = section.get(name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"config.json has no usable `{name}`")
            sizes.append(value)
        return MlpDimensions(*sizes)


_SEPARATE_GLU = (
    Projection("mlp.gate_proj", ("gate",), 0),
    Projection("mlp.up_proj", ("up",), 0),
    Projection("mlp.down_proj", ("down",), 1),
)

LAYOUTS: tuple[MlpLayout, ...] = (
    MlpLayout(
        model_types=("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2"),
        projections=_SEPARATE_GLU,
    ),
)


def find_layout(model_type: str) -> MlpLayout | None:
    """Find the layout of a family; None when there is no row for it."""
    return next((row for row in LAYOUTS if model_type in row.model_types), None)


def layout_model_types() -> tuple[str, ...]:
    """Every `model_type` with a layout, in table order."""
    return tuple(name for row in LAYOUTS for name in row.model_types)


def check_mlps(facts: ModelFacts) -> tuple[Finding, ...]:
    """Say why the MLPs of a model cannot be edited; empty when every layer fits its layout.

    Looks at config.json and the tensor headers only. A cause that explains the rest (adapter,
    quantised, experts, unknown family) is reported alone.
    """
    layout = find_layout(facts.model_type)
    cause = _adapter(facts) or _quantized(facts) or _experts(facts) or _unknown_family(facts)
    if cause or layout is None:
        return (cause,) if cause else ()
    try:
        dimensions = layout.dimensions(facts.config)
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        return (_finding("checkpoint_inconsistent", f"{exc}; repair the file and try again."),)
    if dimensions.layers > len(facts.tensors):
        # Looking for each of 10**9 layers would take hours and all memory.
        message = (
            f"config.json says `{layout.layers_field}` is {dimensions.layers}, but the files hold "
            f"{len(facts.tensors)} tensors in all; repair config.json or complete the files."
        )
        return (_finding("checkpoint_inconsistent", message),)
    return tuple(islice(_projection_findings(facts.tensors, layout, dimensions), _MAX_FINDINGS))


def _adapter(facts: ModelFacts) -> Finding | None:
    names = {file.path for file in facts.files}
    only_adapter = facts.tensors and all("lora_" in name for name in facts.tensors)
    has_adapter_file = "adapter_config.json" in names and not facts.tensors
    if not (only_adapter or has_adapter_file or "peft_type" in facts.config):
        return None
    message = "The checkpoint holds adapter weights only; merge the adapter into its base first."
    return _finding("adapter_checkpoint", message)


def _quantized(facts: ModelFacts) -> Finding | None:
    if facts.config.get("quantization_config") is None:
        return None
    message = "config.json has a `quantization_config`; use the unquantised checkpoint."
    return _finding("quantized_checkpoint", message)


def _experts(facts: ModelFacts) -> Finding | None:
    announced = [
        f"`{name}`"
        for name in _EXPERT_FIELDS
        if isinstance(facts.config.get(name), int) and facts.config[name] > 0
    ]
    layers = sorted({layer for layer in map(_expert_layer, facts.tensors) if layer is not None})
    if not announced and not layers:
        return None
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


def _unknown_family(facts: ModelFacts) -> Finding | None:
    if find_layout(facts.model_type) is not None:
        return None
    known = ", ".join(layout_model_types())
    named = f"model_type `{facts.model_type}`" if facts.model_type else "A model without model_type"
    return _finding("unsupported_architecture", f"{named} is not supported; supported: {known}.")


def _projection_findings(
    tensors: Mapping[str, TensorFact], layout: MlpLayout, dimensions: MlpDimensions
) -> Iterator[Finding]:
    missing: dict[str, list[int]] = {}
    for layer in range(dimensions.layers):
        for projection in layout.projections:
            weight = tensors.get(layout.weight(layer, projection))
            if weight is None:
                missing.setdefault(projection.module, []).append(layer)
                continue
            expected = projection.weight_shape(dimensions)
            yield from _tensor_findings(layout.weight(layer, projection), weight, expected)
            bias = tensors.get(layout.bias(layer, projection))
            if bias is not None:
                shape = projection.bias_shape(dimensions)
                yield from _tensor_findings(layout.bias(layer, projection), bias, shape)
    yield from _missing_findings(missing, layout, dimensions)
    yield from _bias_findings(tensors, layout, dimensions)
    yield from _surplus_layers(tensors, layout, dimensions)


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


def _missing_findings(
    missing: Mapping[str, list[int]], layout: MlpLayout, dimensions: MlpDimensions
) -> Iterator[Finding]:
    for module, layers in missing.items():
        tensor = layout.module(layers[0], module) + ".weight"
        if len(layers) == dimensions.layers:
            message = f"No layer has the projection `{module}` (first missing: `{tensor}`)."
            yield _finding("unsupported_mlp", message)
        else:
            message = f"`{tensor}` is missing (layers {_listed(layers)}); the files are incomplete."
            yield _finding("checkpoint_inconsistent", message)


def _bias_findings(
    tensors: Mapping[str, TensorFact], layout: MlpLayout, dimensions: MlpDimensions
) -> Iterator[Finding]:
    """Demand each bias in all layers or in none: a config has one switch for all."""
    for projection in layout.projections:
        present = [layout.bias(n, projection) in tensors for n in range(dimensions.layers)]
        if any(present) and not all(present):
            tensor = layout.bias(present.index(False), projection)
            message = f"`{tensor}` is missing while other layers have it; files are incomplete."
            yield _finding("checkpoint_inconsistent", message)


def _surplus_layers(
    tensors: Mapping[str, TensorFact], layout: MlpLayout, dimensions: MlpDimensions
) -> Iterator[Finding]:
    for projection in layout.projections:
        surplus = layout.weight(dimensions.layers, projection)
        if surplus in tensors:
            message = f"`{surplus}` exists, but config.json has {dimensions.layers} layers."
            yield _finding("checkpoint_inconsistent", message)


def _listed(layers: list[int]) -> str:
    named = ", ".join(map(str, layers[:_MAX_NAMED]))
    return named if len(layers) <= _MAX_NAMED else f"{named} and {len(layers) - _MAX_NAMED} more"


def _finding(code: str, message: str) -> Finding:
    return Finding(pointer="/model", code=code, message=message)
