"""Hooks on every capture point of a decoder, resolved from the layout table."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

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

    def block(self, layer: int) -> nn.Module:
        """Find the module of a whole layer; raises as `module` does."""
        return self._find(self.layout.layer_prefix.format(layer=layer))

    def module(self, layer: int, relative: str) -> nn.Module:
        """Find a module of one layer.

        Raises
        ------
        JobFailure
            The layout names a module that the loaded model does not have.
        """
        return self._find(self.layout.module(layer, relative))

    def _find(self, name: str) -> nn.Module:
        try:
            return self.model.get_submodule(name)
        except AttributeError as exc:
            raise JobFailure(
                JobErrorCode.UNSUPPORTED_ARCHITECTURE,
                f"The loaded model has no module `{name}`.",
                "Use a model of a supported family with its original layer names.",
            ) from exc

    def input_norm(self, layer: int) -> nn.Module:
        """Find the norm before attention: the first of the layout's names that the layer has."""
        parent = self.block(layer)
        names = self.layout.input_norm
        return self.module(layer, next((n for n in names if hasattr(parent, n)), names[-1]))

    def down_projection(self, layer: int) -> nn.Module:
        """Find the projection that leads from the neurons back to the hidden size."""
        projection = self.layout.projection("down")
        if projection is None:
            raise ValueError("the layout has no down projection")
        return self.module(layer, projection.module)


def capture_points(layout: MlpLayout) -> tuple[CapturePoint, ...]:
    """Points that exist in this family, in execution order inside a layer."""
    absent = set()
    if not layout.input_norm:
        absent.add(CapturePoint.INPUT_NORM)
    if layout.attention is None:
        absent.add(CapturePoint.ATTENTION_OUTPUT)
    if not layout.is_editable:
        absent |= {*NEURON_POINTS, CapturePoint.DOWN_PROJ}
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
            for handle in _LayerHooks(decoder, layer, observe, frozenset(points)).register():
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


def _points_of(projection: Projection, layout: MlpLayout) -> tuple[CapturePoint, ...]:
    points = tuple(_POINT_OF_ROLE[role] for role in projection.roles)
    if projection.is_down and layout.mlp is None:
        # No module has the MLP's output but the down projection.
        return (*points, CapturePoint.MLP_OUTPUT)
    return points


class _LayerHooks:
    """The hooks on one layer; `points` are those that are asked for."""

    def __init__(
        self, decoder: Decoder, layer: int, observe: Observe, points: frozenset[CapturePoint]
    ) -> None:
        self._decoder = decoder
        self._layer = layer
        self._observe = observe
        self._points = points
        self._batch: tuple[int, ...] = ()  # (prompts, length) of the pass that runs

    def register(self) -> Iterator[RemovableHandle]:
        """Put the hooks on, and yield a handle for each."""
        for module, points in self._outputs():
            if self._points.intersection(points):
                yield module.register_forward_hook(self._output_hook(points))
        if CapturePoint.DOWN_PROJ_INPUT in self._points:
            down = self._decoder.down_projection(self._layer)
            yield down.register_forward_pre_hook(self._see_input)
        block = self._decoder.block(self._layer)
        yield block.register_forward_pre_hook(self._note_batch, with_kwargs=True)

    def _outputs(self) -> Iterator[tuple[nn.Module, tuple[CapturePoint, ...]]]:
        """Find the modules whose outputs are points."""
        decoder, layout, layer = self._decoder, self._decoder.layout, self._layer
        if layout.input_norm:
            yield decoder.input_norm(layer), (CapturePoint.INPUT_NORM,)
        for relative, point in (
            (layout.attention, CapturePoint.ATTENTION_OUTPUT),
            (layout.mlp, CapturePoint.MLP_OUTPUT),
        ):
            if relative is not None:
                yield decoder.module(layer, relative), (point,)
        for projection in layout.projections:
            yield decoder.module(layer, projection.module), _points_of(projection, layout)

    def _output_hook(
        self, points: tuple[CapturePoint, ...]
    ) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
        is_fused = len(points) > 1 and CapturePoint.MLP_OUTPUT not in points

        def hook(_module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
            tensor: Tensor = output[0] if isinstance(output, tuple) else output
            parts = tensor.chunk(len(points), dim=-1) if is_fused else (tensor,) * len(points)
            for point, part in zip(points, parts, strict=True):
                self._see(point, part)

        return hook

    def _see_input(self, _module: nn.Module, args: tuple[Any, ...]) -> None:
        self._see(CapturePoint.DOWN_PROJ_INPUT, args[0])

    def _note_batch(
        self, _module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        hidden: Tensor = args[0] if args else kwargs["hidden_states"]
        self._batch = tuple(hidden.shape[:2])

    def _see(self, point: CapturePoint, tensor: Tensor) -> None:
        # OPT runs its MLP on a flat list of the tokens of all prompts.
        if tensor.dim() == 2:
            tensor = tensor.reshape(*self._batch, -1)
        self._observe(point, self._layer, tensor)
