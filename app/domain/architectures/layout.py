"""What can be asked of the layout of a family: names, axes, shapes and config fields."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

Role = Literal["gate", "up", "down"]


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
    """Number of layers, hidden size H, and number of MLP neurons I of one layer.

    I is 0 for families whose MLP is experts: their neurons are not looked at.
    """

    layers: int
    hidden: int
    neurons: int


@dataclass(frozen=True, slots=True)
class TensorNames:
    """How one checkpoint spells the tensors of its layers: `layer_prefix` holds `{layer}`."""

    layer_prefix: str

    def tensor(self, layer: int, relative: str) -> str:
        """Full name of the tensor `relative` of one layer."""
        return f"{self.layer_prefix.format(layer=layer)}.{relative}"

    def weight(self, layer: int, projection: Projection) -> str:
        """Tensor name of a projection's weight."""
        return self.tensor(layer, f"{projection.module}.weight")

    def bias(self, layer: int, projection: Projection) -> str:
        """Tensor name of a projection's bias, which a checkpoint may or may not have."""
        return self.tensor(layer, f"{projection.module}.bias")


@dataclass(frozen=True, slots=True)
class MlpLayout:
    """Names and config fields of the families in `model_types`.

    Modules, named inside a layer of the loaded model: `attention` and `mlp` are those whose output
    is that of the whole block, before anything is added to it. `mlp` is None where no module has
    that output: it is then the output of the down projection. `input_norm` lists the names of the
    norm before attention, of which a model has the first that exists; empty: the family has none.
    `postponed_norm` is a config field and the value at which that norm comes after attention.

    `projections` is empty for families whose MLP is experts. `layer_prefix` names a layer of the
    loaded model; `stored_prefixes` are other names of it in weight files (the prefix without its
    first part is always one: models are also saved without their head).

    Config fields are tuples where the config class reads several, best first. `size_field` is
    None where the model class fixes the number of neurons. Where the field is null or absent there
    are `default_expansion` neurons for each of the hidden size. `config_section` is the path to
    the part of config.json that holds the fields (empty: the top level).
    """

    model_types: tuple[str, ...]
    projections: tuple[Projection, ...]
    layer_prefix: str = "model.layers.{layer}"
    stored_prefixes: tuple[str, ...] = ()
    attention: str | None = "self_attn"
    input_norm: tuple[str, ...] = ("input_layernorm",)
    postponed_norm: tuple[str, object] | None = None
    mlp: str | None = "mlp"
    layers_fields: tuple[str, ...] = ("num_hidden_layers",)
    hidden_fields: tuple[str, ...] = ("hidden_size",)
    size_field: str | None = "intermediate_size"
    default_expansion: int | None = None
    positions_fields: tuple[str, ...] = ("max_position_embeddings",)
    config_section: tuple[str, ...] = ()

    @property
    def is_editable(self) -> bool:
        """Whether there are neurons to edit, and not experts."""
        return bool(self.projections)

    @property
    def is_resizable(self) -> bool:
        """Whether neurons can be removed, and not only zeroed or scaled."""
        return self.is_editable and self.size_field is not None

    @property
    def is_extension(self) -> bool:
        """Whether this goes beyond the article, which knows gated MLPs only."""
        return self.projection("gate") is None

    @property
    def spellings(self) -> tuple[TensorNames, ...]:
        """Every way in which weight files name the layers, the usual one first."""
        _, _, headless = self.layer_prefix.partition(".")
        return tuple(map(TensorNames, (self.layer_prefix, *self.stored_prefixes, headless)))

    def module(self, layer: int, relative: str) -> str:
        """Full name of the module `relative` of one layer, as in the loaded model."""
        return f"{self.layer_prefix.format(layer=layer)}.{relative}"

    def projection(self, role: Role) -> Projection | None:
        """Find the projection that computes `role`, or None (a plain MLP has no gate)."""
        return next((p for p in self.projections if role in p.roles), None)

    def tensor_names(self, tensors: Container[str]) -> TensorNames:
        """Find how a checkpoint with these tensors spells its layers.

        Judged by layer 0; a checkpoint without any tensor of it is taken to spell them as usual.
        """
        probes = [f"{p.module}.weight" for p in self.projections]
        probes += [f"{name}.weight" for name in self.input_norm]
        for names in self.spellings:
            if any(names.tensor(0, probe) in tensors for probe in probes):
                return names
        return self.spellings[0]

    def section(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Pick the part of config.json that holds the fields of the language model."""
        part = config
        for key in self.config_section:
            part = part[key]
        return part

    def fitted_to(self, config: Mapping[str, Any]) -> "MlpLayout":
        """Leave out the norm before attention where this model has it elsewhere."""
        if self.postponed_norm is None:
            return self
        field, value = self.postponed_norm
        is_postponed = self.section(config).get(field) == value
        return replace(self, input_norm=()) if is_postponed else self

    def dimensions(self, config: Mapping[str, Any]) -> MlpDimensions:
        """Read the dimensions from config.json.

        Raises
        ------
        ValueError
            A field is missing or not a positive integer, or two spellings of one contradict.
        """
        section = self.section(config)
        layers = _size(section, self.layers_fields)
        hidden = _size(section, self.hidden_fields)
        if not self.is_editable:
            return MlpDimensions(layers, hidden, 0)
        is_given = self.size_field is not None and section.get(self.size_field) is not None
        if self.size_field is None or (self.default_expansion is not None and not is_given):
            return MlpDimensions(layers, hidden, hidden * (self.default_expansion or 1))
        return MlpDimensions(layers, hidden, _size(section, (self.size_field,)))

    def max_positions(self, config: Mapping[str, Any]) -> int | None:
        """Read the most tokens that a text may have; None where config.json does not say."""
        section = self.section(config)
        for field in self.positions_fields:
            value = section.get(field)
            if type(value) is int and value > 0:
                return value
        return None


def _size(section: Mapping[str, Any], fields: tuple[str, ...]) -> int:
    given = {name: section[name] for name in fields if section.get(name) is not None}
    for name in given or fields:
        value = given.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"config.json has no usable `{name}`")
    if len(set(given.values())) > 1:
        raise ValueError(f"config.json contradicts itself in {' and '.join(map(repr, given))}")
    return int(next(iter(given.values())))
