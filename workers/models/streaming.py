"""Write an edited copy of a safetensors file without loading it.

Tensors outside the plan are copied byte for byte and never decoded. Inside it, neurons are moved
or zeroed as raw bytes; only `Scale` computes with values. Same input and plan, same bytes out.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from app.domain.models import FileFact
from workers.models.tensor_files import (
    BLOCK_BYTES,
    Bits,
    Shard,
    StoredTensor,
    byte_blocks,
    row_blocks,
    scaled,
)
from workers.runtime.context import Stopped

Indices = npt.NDArray[np.int64]
ShouldStop = Callable[[], bool]
OnBytes = Callable[[int], None]

# In a `Gather`, the source index of an element that is zero.
ZERO = -1
_HEADER_ALIGNMENT = 8


@dataclass(frozen=True, slots=True)
class Gather:
    """Build one axis anew: element k comes from `sources[k]` of the original, or is zero."""

    axis: Literal[0, 1]
    sources: Indices


@dataclass(frozen=True, slots=True)
class Scale:
    """Multiply the elements at `indices` of one axis of a matrix by `factor`."""

    axis: Literal[0, 1]
    indices: Indices
    factor: float


Edit = Gather | Scale


def edited_shape(tensor: StoredTensor, edit: Edit | None) -> tuple[int, ...]:
    """Give the shape of a tensor after its edit."""
    if not isinstance(edit, Gather):
        return tensor.shape
    return tuple(
        len(edit.sources) if axis == edit.axis else size for axis, size in enumerate(tensor.shape)
    )


def edited_size(tensor: StoredTensor, edit: Edit | None) -> int:
    """Give the bytes of a tensor after its edit."""
    if not isinstance(edit, Gather):
        return tensor.size_bytes
    return int(np.prod(edited_shape(tensor, edit), dtype=np.int64)) * tensor.item_bytes


def shard_header(shard: Shard, edits: Mapping[str, Edit]) -> bytes:
    """Lay out the edited shard: the length prefix and the JSON header, padded with spaces."""
    # Older loaders refuse a file whose metadata does not name the framework.
    content: dict[str, object] = {"__metadata__": {"format": "pt", **shard.metadata}}
    offset = 0
    for tensor in shard.tensors:
        edit = edits.get(tensor.name)
        end = offset + edited_size(tensor, edit)
        content[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(edited_shape(tensor, edit)),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _HEADER_ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def write_shard(
    shard: Shard,
    target: Path,
    edits: Mapping[str, Edit],
    *,
    should_stop: ShouldStop,
    on_bytes: OnBytes,
) -> FileFact:
    """Write the edited copy of one file and sync it to disk; `Stopped` leaves it unfinished.

    Parameters
    ----------
    shard, target
        The file to copy, and the path of the copy, which must not exist.
    edits
        The edit of each tensor that changes, by name.
    should_stop, on_bytes
        Asked before every block; told the bytes of every block written.

    Returns
    -------
    FileFact
        Name, size and SHA-256 of the copy, hashed while writing.
    """
    digest = hashlib.sha256()
    size = 0
    with shard.path.open("rb") as source, target.open("xb") as out:
        for block in _shard_blocks(source, shard, edits):
            if should_stop():
                raise Stopped
            out.write(block)
            digest.update(block)
            size += len(block)
            on_bytes(len(block))
        out.flush()
        os.fsync(out.fileno())
    return FileFact(target.name, size, digest.hexdigest())


def _shard_blocks(source: BinaryIO, shard: Shard, edits: Mapping[str, Edit]) -> Iterator[bytes]:
    yield shard_header(shard, edits)
    for tensor in shard.tensors:
        yield from tensor_blocks(source, tensor, edits.get(tensor.name))


def tensor_blocks(
    source: BinaryIO, tensor: StoredTensor, edit: Edit | None, *, block_bytes: int = BLOCK_BYTES
) -> Iterator[bytes]:
    """Yield the bytes of one tensor after its edit.

    A block has at most `block_bytes`, or as many as the longer of a stored and an edited row.
    """
    match edit:
        case None:
            yield from byte_blocks(source, tensor.begin, tensor.size_bytes, block_bytes=block_bytes)
        case Gather(axis=0):
            pieces = _gathered_rows(source, tensor, edit.sources, block_bytes)
            yield from _joined(pieces, block_bytes)
        case Gather():
            yield from _gathered_columns(source, tensor, edit.sources, block_bytes)
        case Scale():
            yield from _scaled_blocks(source, tensor, edit, block_bytes)


def _gathered_rows(
    source: BinaryIO, tensor: StoredTensor, sources: Indices, block_bytes: int
) -> Iterator[bytes]:
    """Read runs of neighbouring rows as byte ranges; zero rows need no source."""
    row_bytes = tensor.row_bytes
    for first, count in _runs(sources):
        size = count * row_bytes
        if first == ZERO:
            yield from _zeros(size, block_bytes)
        else:
            begin = tensor.begin + first * row_bytes
            yield from byte_blocks(source, begin, size, block_bytes=block_bytes)


def _runs(sources: Indices) -> Iterator[tuple[int, int]]:
    """Split into (first index, length): consecutive indices, or zeros."""
    is_zero = sources == ZERO
    continues = np.where(is_zero[1:], is_zero[:-1], ~is_zero[:-1] & (np.diff(sources) == 1))
    starts = np.flatnonzero(np.concatenate([[len(sources) > 0], ~continues]))
    lengths = np.diff(starts, append=len(sources))
    return zip(sources[starts].tolist(), lengths.tolist(), strict=True)


def _zeros(size: int, block_bytes: int) -> Iterator[bytes]:
    for begin in range(0, size, block_bytes):
        yield bytes(min(block_bytes, size - begin))


def _joined(pieces: Iterator[bytes], block_bytes: int) -> Iterator[bytes]:
    """Join small pieces to blocks of at most `block_bytes`: a run can be a single short row."""
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        if size + len(piece) > block_bytes:
            yield b"".join(waiting)
            waiting, size = [], 0
        waiting.append(piece)
        size += len(piece)
    yield b"".join(waiting)


def _gathered_columns(
    source: BinaryIO, tensor: StoredTensor, sources: Indices, block_bytes: int
) -> Iterator[bytes]:
    is_zero = sources == ZERO
    columns = np.where(is_zero, 0, sources)
    # An edit may widen the rows: padding, or a choice that repeats columns.
    step_bytes = block_bytes * tensor.shape[1] // max(tensor.shape[1], len(sources), 1)
    for _, block in row_blocks(source, tensor, block_bytes=step_bytes):
        picked: Bits = np.take(block, columns, axis=1)
        picked[:, is_zero] = 0
        yield picked.tobytes()


def _scaled_blocks(
    source: BinaryIO, tensor: StoredTensor, edit: Scale, block_bytes: int
) -> Iterator[bytes]:
    for first, block in row_blocks(source, tensor, block_bytes=block_bytes):
        copy = block.copy()
        if edit.axis == 1:
            copy[:, edit.indices] = scaled(block[:, edit.indices], tensor.dtype, edit.factor)
        else:
            rows = edit.indices[(edit.indices >= first) & (edit.indices < first + len(block))]
            copy[rows - first] = scaled(block[rows - first], tensor.dtype, edit.factor)
        yield copy.tobytes()
