"""Hooks on every capture point of a decoder, resolved from the layout table."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from torch import Tensor, nn

from app.domain.architectures import MlpLayout, Projection
from app.domain.errors import JobErrorCode, JobFailure


class CapturePoint(StrEnum):
    """Where activations are read, in execution order. The names are part of the report format."""

    INPUT_NORM = "input_norm"
    ATTENTION_OUTPUT = "attention_output"
    GATE_PROJ = "gate_proj"
    UP_PROJ = "up_proj"
    DOWN_PROJ_INPUT = "down_proj_input"
    DOWN_PROJ = "down_proj"
    MLP_OUTPUT = "mlp_output"


NEURON_POINTS = (CapturePoint.GATE_PROJ, CapturePoint.UP_PROJ, CapturePoint.DOWN_PROJ_INPUT)
"""Points whose last axis is the neurons of the MLP."""

Observe = Callable[[CapturePoint, int, Tensor], None]
"""Called with the point, the layer and its activations (prompts, length, width)."""

_POINT_OF_ROLE = {
    "gate": CapturePoint.GATE_PROJ,
    "up": CapturePoint.UP_PROJ,
    "down": CapturePoint.DOWN_PROJ,
}


@dataclass(frozen=True, slots=True)
class Decoder:
    """A loaded model with its layout and the number of its layers."""

    model: nn.Module
    layout: MlpLayout
    layers: int

    def module(self, layer: int, relative: str) -> nn.Module:
        """Find a module of one layer.

        Raises
        ------
        JobFailure
            The layout names a module that the loaded model does not have.
        """
        name = self.layout.module(layer, relative)
        try:
            return self.model.get_submodule(name)
        except AttributeError as exc:
            raise JobFailure(
                JobErrorCode.UNSUPPORTED_ARCHITECTURE,
                f"The loaded model has no module `{name}`.",
                "Use a model of a supported family with its original layer names.",
            ) from exc

    def down_projection(self, layer: int) -> nn.Module:
        """Find the projection that leads from the neurons back to the hidden size."""
        projection = self.layout.projection("down")
        if projection is None:
            raise ValueError("the layout has no down projection")
        return self.module(layer, projection.module)


def capture_points(layout: MlpLayout) -> tuple[CapturePoint, ...]:
    """Points that exist in this family, in execution order inside a layer."""
    absent = set()
    if layout.input_norm is None:
        absent.add(CapturePoint.INPUT_NORM)
    if layout.attention is None:
        absent.add(CapturePoint.ATTENTION_OUTPUT)
    if layout.projection("gate") is None:
        absent.add(CapturePoint.GATE_PROJ)
    return tuple(point for point in CapturePoint if point not in absent)


@contextmanager
def capture(
    decoder: Decoder, observe: Observe, *, points: Sequence[CapturePoint]
) -> Iterator[None]:
    """Call `observe` for each of `points` in each layer while the model runs.

    Fused projections are split into the parts they compute. Nothing is kept.
    """
    with ExitStack() as stack:
        for layer in range(decoder.layers):
            for handle in _layer_hooks(decoder, layer, observe, frozenset(points)):
                stack.callback(handle.remove)
        yield


@contextmanager
def scaled_neurons(decoder: Decoder, factors: Tensor) -> Iterator[None]:
    """Multiply the input of each down projection by `factors` (layers, neurons).

    A factor of 0 equals removing the neuron: its gate, its up row and its down column act through
    this product only. The weights stay untouched.
    """
    with ExitStack() as stack:
        for layer in range(decoder.layers):
            handle = decoder.down_projection(layer).register_forward_pre_hook(
                _scale_input(factors[layer])
            )
            stack.callback(handle.remove)
        yield


def _scale_input(factor: Tensor) -> Callable[[nn.Module, tuple[Any, ...]], tuple[Any, ...]]:
    def hook(_module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (args[0] * factor.to(args[0].dtype), *args[1:])

    return hook


def _layer_hooks(
    decoder: Decoder, layer: int, observe: Observe, points: frozenset[CapturePoint]
) -> Iterator[Any]:
    layout = decoder.layout
    for relative, point in (
        (layout.input_norm, CapturePoint.INPUT_NORM),
        (layout.attention, CapturePoint.ATTENTION_OUTPUT),
        (layout.mlp, CapturePoint.MLP_OUTPUT),
    ):
        if relative is not None and point in points:
            module = decoder.module(layer, relative)
            yield module.register_forward_hook(_output_hook(observe, (point,), layer))
    for projection in layout.projections:
        wanted = _points_of(projection, layout)
        if points.intersection(wanted):
            module = decoder.module(layer, projection.module)
            yield module.register_forward_hook(_output_hook(observe, wanted, layer))
    if CapturePoint.DOWN_PROJ_INPUT in points:
        module = decoder.down_projection(layer)
        yield module.register_forward_pre_hook(_input_hook(observe, layer))


def _points_of(projection: Projection, layout: MlpLayout) -> tuple[CapturePoint, ...]:
    points = tuple(_POINT_OF_ROLE[role] for role in projection.roles)
    if projection.is_down and layout.mlp is None:
        # Families without an MLP module: the down projection's output is the MLP's output.
        return (*points, CapturePoint.MLP_OUTPUT)
    return points


def _output_hook(
    observe: Observe, points: tuple[CapturePoint, ...], layer: int
) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
    is_fused = len(points) > 1 and CapturePoint.MLP_OUTPUT not in points

    def hook(_module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        tensor: Tensor = output[0] if isinstance(output, tuple) else output
        parts = tensor.chunk(len(points), dim=-1) if is_fused else (tensor,) * len(points)
        for point, part in zip(points, parts, strict=True):
            observe(point, layer, part)

    return hook


def _input_hook(observe: Observe, layer: int) -> Callable[[nn.Module, tuple[Any, ...]], None]:
    def hook(_module: nn.Module, args: tuple[Any, ...]) -> None:
        observe(CapturePoint.DOWN_PROJ_INPUT, layer, args[0])

    return hook
