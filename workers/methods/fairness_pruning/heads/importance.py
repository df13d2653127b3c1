"""How much each attention head matters structurally, from the weights alone.

The importance of a head is the Frobenius norm of its columns of the output projection times the
Frobenius norm of its value rows, those of its key-value head: the head's contribution is the
product of the two matrices, whose norm is at most this product. Families that fuse queries, keys
and values lay their rows out in four different ways, so for them the output projection counts
alone. Files are read in blocks of rows, so the model is never loaded.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from app.domain.attention import Attention
from workers.models.streaming import ShouldStop
from workers.models.tensor_files import CheckpointFiles, open_checkpoint, row_blocks, to_float32
from workers.runtime.context import Stopped

Vector = npt.NDArray[np.float32]
_Float64 = npt.NDArray[np.float64]

# Small, since each block is widened up to fourfold.
_BLOCK_BYTES = 4 * 1024 * 1024


def head_importance(
    model_dir: Path, attention: Attention, *, should_stop: ShouldStop = lambda: False
) -> dict[int, Vector]:
    """Score every query head of every layer; higher matters more.

    Parameters
    ----------
    model_dir, attention
        The model as a transformers directory, and its attention.
    should_stop
        Polled before every matrix; `Stopped` is raised where it says so.

    Returns
    -------
    dict
        By layer, a float32 vector of shape (heads,).
    """
    checkpoint = open_checkpoint(model_dir)
    layers = range(attention.shape.layers)
    return {n: _layer_importance(checkpoint, attention, n, should_stop) for n in layers}


def _layer_importance(
    checkpoint: CheckpointFiles, attention: Attention, layer: int, should_stop: ShouldStop
) -> Vector:
    layout, shape = attention.layout, attention.shape
    output = _squares(
        checkpoint, attention.weight(layer, layout.output), axis=layout.head_axis, stop=should_stop
    )
    norms = _block_norms(output, shape.heads)
    if layout.value is not None:
        rows = _squares(checkpoint, attention.weight(layer, layout.value), axis=0, stop=should_stop)
        shared = _block_norms(rows, shape.key_value_heads)
        norms = norms * np.repeat(shared, shape.group_size)
    return norms.astype(np.float32)


def _squares(checkpoint: CheckpointFiles, name: str, *, axis: int, stop: ShouldStop) -> _Float64:
    """Sum the squares of a matrix over all but one axis: float32 values, sums in float64."""
    if stop():
        raise Stopped
    parts = [np.square(rows).sum(axis=1 - axis) for rows in _rows(checkpoint, name)]
    total: _Float64 = np.concatenate(parts) if axis == 0 else np.sum(parts, axis=0)
    return total


def _rows(checkpoint: CheckpointFiles, name: str) -> Iterator[_Float64]:
    shard, tensor = checkpoint.locate(name)
    with shard.path.open("rb") as file:
        for _, bits in row_blocks(file, tensor, block_bytes=_BLOCK_BYTES):
            yield to_float32(bits, tensor.dtype).astype(np.float64)


def _block_norms(squares: _Float64, blocks: int) -> _Float64:
    norms: _Float64 = np.sqrt(squares.reshape(blocks, -1).sum(axis=1))
    return norms
