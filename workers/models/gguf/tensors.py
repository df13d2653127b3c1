"""Which tensors go into a GGUF file, and their bytes, a block at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

import gguf
import numpy as np

from app.domain.errors import JobErrorCode, JobFailure
from app.domain.gguf_families import GgufFamily
from workers.models.gguf.architecture import head_width
from workers.models.gguf.recipes import Recipe
from workers.models.streaming import Gather, Indices, OnBytes, ShouldStop, tensor_blocks
from workers.models.tensor_files import (
    BLOCK_BYTES,
    CheckpointFiles,
    Shard,
    StoredTensor,
    byte_blocks,
    to_float32,
)
from workers.runtime.context import Stopped

_TYPES = {
    "F32": gguf.GGMLQuantizationType.F32,
    "F16": gguf.GGMLQuantizationType.F16,
    "BF16": gguf.GGMLQuantizationType.BF16,
}
_HEAD = "lm_head.weight"
_OUTPUT = "output.weight"
_EMBEDDING = "token_embd.weight"
# Buffers that old versions of the library saved; all later ones compute them.
_BUFFERS = ("rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias")

Form = Literal["stored", "transposed", "float32", "float32_plus_one"]


@dataclass(frozen=True, slots=True)
class PlannedTensor:
    """One tensor of the GGUF file, and what it is made from.

    `shape` is in the library's order, rows first. `rows` gives the order of the rows where it
    changes.
    """

    name: str
    shard: Shard
    source: StoredTensor
    shape: tuple[int, ...]
    type: Any
    form: Form = "stored"
    rows: Indices | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes in the GGUF file, padding apart."""
        count = int(np.prod(self.shape, dtype=np.int64))
        return count * (4 if self.type is gguf.GGMLQuantizationType.F32 else 2)


def plan_tensors(
    files: CheckpointFiles, config: Any, family: GgufFamily, recipe: Recipe
) -> list[PlannedTensor]:
    """Plan every tensor of the file, in the order of the checkpoint.

    Raises
    ------
    JobFailure
        The checkpoint has a tensor that the architecture does not know.
    """
    architecture = _architecture(family.architecture)
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    planned = []
    for shard in files.shards:
        for tensor in shard.tensors:
            tied = tensor.name == _HEAD and config.tie_word_embeddings
            if tied or tensor.name.endswith(_BUFFERS):
                continue
            name = names.get_name(tensor.name, try_suffixes=(".weight", ".bias"))
            if name is None:
                raise _unknown(tensor.name, family)
            planned.append(_plan(name, shard, tensor, config, recipe))
    if recipe.needs_output and all(item.name != _OUTPUT for item in planned):
        planned += [_renamed(item) for item in planned if item.name == _EMBEDDING]
    return planned


def _architecture(name: str) -> Any:
    return next(arch for arch, known in gguf.MODEL_ARCH_NAMES.items() if known == name)


def _unknown(tensor: str, family: GgufFamily) -> JobFailure:
    return JobFailure(
        JobErrorCode.UNSAFE_MODEL_FORMAT,
        f"GGUF has no place for the tensor {tensor[:200]!r} in {family.architecture}.",
        "Send the job again without gguf in outputs.formats.",
    )


def _renamed(item: PlannedTensor) -> PlannedTensor:
    return PlannedTensor(_OUTPUT, item.shard, item.source, item.shape, item.type, item.form)


def _plan(
    name: str, shard: Shard, tensor: StoredTensor, config: Any, recipe: Recipe
) -> PlannedTensor:
    # Readers want vectors, and the table of positions, in single precision.
    if len(tensor.shape) < 2 or tensor.dtype == "F64" or name.startswith("position_embd"):
        plus_one = recipe.unit_norms and name.endswith("norm.weight")
        form: Form = "float32_plus_one" if plus_one else "float32"
        rows = _rotary_rows(name, tensor, config, recipe)
        return PlannedTensor(
            name, shard, tensor, tensor.shape, gguf.GGMLQuantizationType.F32, form, rows
        )
    stored_type = _TYPES[tensor.dtype]
    if tensor.name.endswith(recipe.transposed) and recipe.transposed:
        shape = tensor.shape[::-1]
        return PlannedTensor(name, shard, tensor, shape, stored_type, "transposed")
    rows = _rotary_rows(name, tensor, config, recipe)
    return PlannedTensor(name, shard, tensor, tensor.shape, stored_type, "stored", rows)


def _rotary_rows(name: str, tensor: StoredTensor, config: Any, recipe: Recipe) -> Indices | None:
    """Order the rows of a query or key projection so that the halves of each head alternate."""
    if not recipe.pairs_rotary or (".attn_q." not in name and ".attn_k." not in name):
        return None
    width = head_width(config)
    rows = np.arange(tensor.shape[0], dtype=np.int64).reshape(-1, 2, width // 2)
    return rows.swapaxes(1, 2).reshape(-1)


@dataclass(slots=True)
class TensorStream:
    """The bytes of a planned tensor, in the form in which `GGUFWriter` takes an array."""

    item: PlannedTensor
    should_stop: ShouldStop
    on_bytes: OnBytes

    @property
    def nbytes(self) -> int:
        """Bytes that `tofile` will write."""
        return self.item.size_bytes

    def tofile(self, out: BinaryIO) -> None:
        """Write the bytes; `Stopped` leaves them unfinished."""
        with self.item.shard.path.open("rb") as source:
            for block in planned_blocks(source, self.item):
                if self.should_stop():
                    raise Stopped
                out.write(block)
                self.on_bytes(len(block))


def planned_blocks(source: BinaryIO, item: PlannedTensor) -> Iterator[bytes]:
    """Yield the bytes of one tensor of the file."""
    edit = None if item.rows is None else Gather(0, item.rows)
    blocks = tensor_blocks(source, item.source, edit)
    match item.form:
        case "stored":
            yield from blocks
        case "transposed":
            yield from _transposed(source, item.source)
        case "float32" | "float32_plus_one":
            offset = np.float32(item.form == "float32_plus_one")
            for block in blocks:
                bits = np.frombuffer(block, dtype=f"<u{item.source.item_bytes}")
                yield (to_float32(bits, item.source.dtype) + offset).tobytes()


def _transposed(source: BinaryIO, tensor: StoredTensor) -> Iterator[bytes]:
    """Read a matrix whole: no weight that is stored so comes near the size of the embedding."""
    raw = b"".join(byte_blocks(source, tensor.begin, tensor.size_bytes))
    bits = np.frombuffer(raw, dtype=f"<u{tensor.item_bytes}").reshape(tensor.shape)
    step = max(1, BLOCK_BYTES // (tensor.shape[0] * tensor.item_bytes))
    for first in range(0, tensor.shape[1], step):
        yield bits[:, first : first + step].T.tobytes()
