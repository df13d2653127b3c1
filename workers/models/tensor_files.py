"""Read the tensors of a checkpoint from its safetensors files, a block at a time.

No tensor is ever loaded whole: a block is at most `BLOCK_BYTES`, or one row where a row is longer,
so the memory needed does not depend on the size of the model.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from app.domain.errors import JobErrorCode, JobFailure, UnsafeModelFormat
from app.domain.models import FileFact, ModelFacts, TensorFact
from app.security.model_files import CONFIG, SINGLE_WEIGHTS, WEIGHTS_INDEX
from app.security.safetensors_check import read_header, read_index

# Small enough to stay in the processor's cache while it is read, hashed and written, and for its
# memory to be used again; see bench/edit_large_checkpoint.py.
BLOCK_BYTES = 4 * 1024 * 1024

_FLOAT_FORMATS: Mapping[str, type[np.floating[Any]]] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
}

Bits = npt.NDArray[np.unsignedinteger[Any]]
Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor and where its bytes lie in its file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    size_bytes: int

    @property
    def item_bytes(self) -> int:
        """Bytes of one element (1 for a tensor without elements)."""
        count = int(np.prod(self.shape, dtype=np.int64))
        return self.size_bytes // count if count else 1

    @property
    def row_bytes(self) -> int:
        """Bytes of one index of the first axis."""
        return self.size_bytes // self.shape[0] if self.shape and self.shape[0] else 0


@dataclass(frozen=True, slots=True)
class Shard:
    """One safetensors file: its tensors in the order of their bytes, and its metadata."""

    path: Path
    tensors: tuple[StoredTensor, ...]
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """The weights of a transformers directory, as headers, with config.json and the index."""

    folder: Path
    config: Mapping[str, Any]
    shards: tuple[Shard, ...]
    index: Mapping[str, Any] | None

    def locate(self, name: str) -> tuple[Shard, StoredTensor]:
        """Find a tensor by name; KeyError when no shard has it."""
        for shard in self.shards:
            for tensor in shard.tensors:
                if tensor.name == name:
                    return shard, tensor
        raise KeyError(name)

    def facts(self) -> ModelFacts:
        """Describe the model as the catalogue's checks see it."""
        tensors = {
            tensor.name: TensorFact(tensor.dtype, tensor.shape, shard.path.name, tensor.size_bytes)
            for shard in self.shards
            for tensor in shard.tensors
        }
        files = tuple(
            FileFact(path.name, path.stat().st_size)
            for path in sorted(self.folder.iterdir())
            if path.is_file()
        )
        return ModelFacts(config=self.config, tensors=tensors, files=files)


def open_checkpoint(folder: Path) -> CheckpointFiles:
    """Read config.json, the index and every header of a transformers directory.

    A single `model.safetensors` wins over an index, as in transformers.

    Raises
    ------
    JobFailure
        A file is missing or damaged.
    """
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        if (folder / SINGLE_WEIGHTS).is_file():
            return CheckpointFiles(folder, config, (open_shard(folder / SINGLE_WEIGHTS),), None)
        raw = (folder / WEIGHTS_INDEX).read_bytes()
        present = {path.name for path in folder.iterdir()}
        names = read_index(raw, name=WEIGHTS_INDEX, present=present).files
        shards = tuple(open_shard(folder / name) for name in names)
    except UnsafeModelFormat as exc:
        raise _damaged(exc.detail) from exc
    except (FileNotFoundError, json.JSONDecodeError) as exc:
        raise _damaged(f"The model directory cannot be read: {exc}") from exc
    return CheckpointFiles(folder, config, shards, json.loads(raw))


def _damaged(message: str) -> JobFailure:
    return JobFailure(
        code=JobErrorCode.UNSAFE_MODEL_FORMAT,
        message=message,
        hint="Save the model again with save_pretrained and submit that.",
    )


def open_shard(path: Path) -> Shard:
    """Read the header of one file, checked; UnsafeModelFormat where it is damaged."""
    with path.open("rb") as file:

        def read(start: int, end: int) -> bytes:
            file.seek(start)
            return file.read(end - start)

        header = read_header(read, path.stat().st_size, name=path.name)
        raw = json.loads(read(8, header.data_start))
    tensors = [
        StoredTensor(
            name=name,
            dtype=fact.dtype,
            shape=fact.shape,
            begin=header.data_start + raw[name]["data_offsets"][0],
            size_bytes=fact.size_bytes,
        )
        for name, fact in header.tensors.items()
    ]
    # Tensors without elements share an offset with their neighbour: order those by name.
    tensors.sort(key=lambda tensor: (tensor.begin, tensor.size_bytes, tensor.name))
    return Shard(path, tuple(tensors), header.metadata)


def byte_blocks(
    file: BinaryIO, begin: int, size: int, *, block_bytes: int = BLOCK_BYTES
) -> Iterator[bytes]:
    """Yield `size` bytes from `begin`, in blocks of at most `block_bytes`.

    Raises
    ------
    JobFailure
        The file ends early.
    """
    file.seek(begin)
    left = size
    while left:
        block = file.read(min(block_bytes, left))
        if not block:
            raise _damaged("A weight file became shorter while it was read")
        left -= len(block)
        yield block


def row_blocks(
    file: BinaryIO, tensor: StoredTensor, *, block_bytes: int = BLOCK_BYTES
) -> Iterator[tuple[int, Bits]]:
    """Yield a matrix as blocks of whole rows: number of the first row, and the raw elements.

    Elements come as unsigned integers of their size, so that nothing is converted on the way.
    """
    rows, columns = tensor.shape
    step = max(1, block_bytes // max(tensor.row_bytes, 1))
    for first in range(0, rows, step):
        count = min(step, rows - first)
        size = count * tensor.row_bytes
        raw = b"".join(byte_blocks(file, tensor.begin + first * tensor.row_bytes, size))
        bits: Bits = np.frombuffer(raw, dtype=f"<u{tensor.item_bytes}")
        yield first, bits.reshape(count, columns)


def to_float32(bits: Bits, dtype: str) -> Float32:
    """Read raw elements of a float type as float32."""
    if dtype == "BF16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return bits.view(_FLOAT_FORMATS[dtype]).astype(np.float32)


def scaled(bits: Bits, dtype: str, factor: float) -> Bits:
    """Multiply raw elements of a float type by `factor`, rounded to nearest even."""
    if dtype == "F64":
        return (bits.view(np.float64) * factor).view(bits.dtype)
    product = to_float32(bits, dtype) * np.float32(factor)
    if dtype != "BF16":
        return product.astype(_FLOAT_FORMATS[dtype]).view(bits.dtype)
    wide = product.view(np.uint32)
    half = np.uint32(0x7FFF) + ((wide >> np.uint32(16)) & np.uint32(1))
    rounded = ((wide + half) >> np.uint32(16)).astype(bits.dtype)
    # Rounding would carry some NaNs over into zero.
    return np.where(np.isnan(product), bits, rounded)
