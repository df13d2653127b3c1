"""Find weights that are NaN or infinite: whatever is computed with them is, too."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workers.models.tensor_files import StoredTensor, byte_blocks, open_shard
from workers.runtime.context import Stopped

# Of each float type: the bits that are all set in what is not finite. That is the exponent, but
# for E4M3, which has one NaN and no infinity.
_NONFINITE_BITS: Mapping[str, int] = {
    "F64": 0x7FF0_0000_0000_0000,
    "F32": 0x7F80_0000,
    "F16": 0x7C00,
    "BF16": 0x7F80,
    "F8_E5M2": 0x7C,
    "F8_E4M3": 0x7F,
}
# A block and its copy without signs stay in the processor's cache; larger ones are slower.
_BLOCK_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True)
class NonfiniteWeights:
    """How many elements are not finite, and the tensors they are in, in the order of the files."""

    count: int
    tensors: tuple[str, ...]


def find_nonfinite(
    folder: Path, *, should_stop: Callable[[], bool], on_bytes: Callable[[int], None]
) -> NonfiniteWeights:
    """Read all weights of a model directory once, a block at a time.

    `on_bytes(count)` tells of every block. Raises `Stopped`.
    """
    counts: dict[str, int] = {}
    for path in sorted(folder.glob("*.safetensors")):
        for tensor, block in _blocks(path):
            if should_stop():
                raise Stopped
            found = _count(block, tensor)
            if found:
                counts[tensor.name] = counts.get(tensor.name, 0) + found
            on_bytes(len(block))
    return NonfiniteWeights(sum(counts.values()), tuple(counts))


def _blocks(path: Path) -> Iterator[tuple[StoredTensor, bytes]]:
    shard = open_shard(path)
    with path.open("rb") as file:
        for tensor in shard.tensors:
            blocks = byte_blocks(file, tensor.begin, tensor.size_bytes, block_bytes=_BLOCK_BYTES)
            yield from ((tensor, block) for block in blocks)


def _count(block: bytes, tensor: StoredTensor) -> int:
    bits = _NONFINITE_BITS.get(tensor.dtype)
    if bits is None:  # whole numbers are all finite
        return 0
    unsigned = np.dtype(f"<u{tensor.item_bytes}").type
    sign = 1 << (8 * tensor.item_bytes - 1)
    magnitudes = np.frombuffer(block, dtype=unsigned) & unsigned(sign - 1)
    # Nearly always the largest says that there is none, and that costs half of counting.
    if magnitudes.max() < bits:
        return 0
    return int(np.count_nonzero(magnitudes >= bits))
