"""How much each MLP neuron matters, from the weights alone (or, for `hybrid`, with activations).

Scores are computed from the safetensors files, one matrix at a time in blocks of rows read as
float32, so the model is never loaded. `max_abs` is the formula printed in the article; `ppm` is
what its code computes under the name MAW, and what its published numbers need.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from app.domain.architectures import MlpLayout, Projection, Role
from workers.methods.fairness_pruning.selecting.column_scores import column_scores
from workers.models.streaming import ShouldStop
from workers.models.tensor_files import (
    CheckpointFiles,
    Float32,
    StoredTensor,
    open_checkpoint,
    row_blocks,
    to_float32,
)
from workers.runtime.context import Stopped

Vector = npt.NDArray[np.float32]
_Float64 = npt.NDArray[np.float64]

# Small, since each block is widened up to fourfold and copied once more by a score.
_BLOCK_BYTES = 4 * 1024 * 1024

# Keeps the quotients of `hybrid` finite; the value of the library it is compared with.
_EPSILON = 1e-8


def _max_abs(rows: Float32) -> _Float64:
    high, low = _extremes(rows)
    return np.maximum(np.abs(high), np.abs(low))


def _peak_to_peak(rows: Float32) -> _Float64:
    """Sum of the maximum and the absolute minimum: a true range only with both signs present."""
    high, low = _extremes(rows)
    return high + np.abs(low)


def _extremes(rows: Float32) -> tuple[_Float64, _Float64]:
    """Highest and lowest value of each row: exact in float32, so that nothing is widened before."""
    return rows.max(axis=1).astype(np.float64), rows.min(axis=1).astype(np.float64)


def _variance(rows: Float32) -> _Float64:
    score: _Float64 = rows.astype(np.float64).var(axis=1, ddof=1)
    return score


def _norm_1(rows: Float32) -> _Float64:
    score: _Float64 = np.abs(rows.astype(np.float64)).sum(axis=1)
    return score


def _norm_2(rows: Float32) -> _Float64:
    score: _Float64 = np.sqrt(np.square(rows.astype(np.float64)).sum(axis=1))
    return score


_ROW_SCORES: Mapping[str, Callable[[Float32], _Float64]] = {
    "max_abs": _max_abs,
    "ppm": _peak_to_peak,
    "vow": _variance,
    "pon": _norm_1,
    "l2": _norm_2,
}


def importance_scores(
    model_dir: Path,
    layout: MlpLayout,
    kind: str,
    *,
    activation_norms: Mapping[int, npt.NDArray[np.floating]] | None = None,
    should_stop: ShouldStop = lambda: False,
) -> dict[int, Vector]:
    """Score every neuron of every layer.

    Parameters
    ----------
    model_dir, layout
        The model as a transformers directory, and the names of its projections.
    kind
        `max_abs`, `ppm`, `vow`, `pon`, `l2` or `hybrid`.
    activation_norms
        For `hybrid`: by layer, the root of the sum of squares of each neuron's activation over
        all real tokens of the calibration texts, shape (I,).
    should_stop
        Polled before every matrix.

    Returns
    -------
    dict
        By layer, a float32 vector of shape (I,); higher matters more.
    """
    if kind == "hybrid":
        if activation_norms is None:
            raise ValueError("hybrid importance needs activation norms")
    elif kind not in _ROW_SCORES:
        raise ValueError(f"unknown importance {kind!r}")
    matrices = _Matrices(open_checkpoint(model_dir), layout, should_stop)
    layers = range(layout.dimensions(matrices.checkpoint.config).layers)
    if kind == "hybrid" and activation_norms is not None:
        return {n: _hybrid(matrices, n, activation_norms[n]) for n in layers}
    return {n: _combined(matrices, n, kind) for n in layers}


def _combined(matrices: "_Matrices", layer: int, kind: str) -> Vector:
    """Combine gate and up, a product for `pon` and a sum for the others; without a gate, up."""
    up = matrices.neuron_scores(layer, "up", kind)
    if matrices.layout.projection("gate") is None:
        return up.astype(np.float32)
    gate = matrices.neuron_scores(layer, "gate", kind)
    return (gate * up if kind == "pon" else gate + up).astype(np.float32)


def _hybrid(
    matrices: "_Matrices", layer: int, activation_norms: npt.NDArray[np.floating]
) -> Vector:
    roles: tuple[Role, ...] = ("gate", "up", "down")
    present = [role for role in roles if matrices.layout.projection(role) is not None]
    parts = [matrices.neuron_scores(layer, role, "ppm") for role in present]
    total: _Float64 = np.sum([part / (part.max() + _EPSILON) for part in parts], axis=0)
    return (total * activation_norms.astype(np.float64)).astype(np.float32)


class _Matrices:
    """Reads projections of one checkpoint as blocks of rows."""

    def __init__(
        self, checkpoint: CheckpointFiles, layout: MlpLayout, should_stop: ShouldStop
    ) -> None:
        self.checkpoint = checkpoint
        self.layout = layout
        self._names = layout.tensor_names(checkpoint.facts().tensors)
        self._should_stop = should_stop

    def neuron_scores(self, layer: int, role: Role, kind: str) -> _Float64:
        """Score the weights that lead into each neuron, or out of it for the role `down`."""
        if self._should_stop():
            raise Stopped
        projection = self.layout.projection(role)
        if projection is None:
            raise ValueError(f"the layout has no {role} projection")
        shard, tensor = self.checkpoint.locate(self._names.weight(layer, projection))
        with shard.path.open("rb") as file:
            if projection.neuron_axis == 1:
                blocks = (rows.astype(np.float64) for rows in _rows(file, tensor))
                return column_scores(blocks, kind)
            part = _role_rows(tensor, projection, role)
            return np.concatenate([_ROW_SCORES[kind](rows) for rows in _rows(file, part)])


def _role_rows(tensor: StoredTensor, projection: Projection, role: Role) -> StoredTensor:
    """Cut out the rows of one role from a fused matrix."""
    blocks = len(projection.roles)
    size = tensor.size_bytes // blocks
    return replace(
        tensor,
        shape=(tensor.shape[0] // blocks, *tensor.shape[1:]),
        begin=tensor.begin + projection.roles.index(role) * size,
        size_bytes=size,
    )


def _rows(file: BinaryIO, tensor: StoredTensor) -> Iterator[Float32]:
    """Yield blocks of rows as float32; sums widen them, so as not to depend on the blocks."""
    for _, bits in row_blocks(file, tensor, block_bytes=_BLOCK_BYTES):
        yield to_float32(bits, tensor.dtype)
