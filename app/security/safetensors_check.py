"""Check a safetensors file by its header, before anything loads it.

The format: 8 bytes little-endian u64 N, N bytes of JSON, then the tensors' bytes without holes.
"""

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from app.domain.errors import Finding, UnsafeModelFormat
from app.domain.models import TensorFact
from app.security.paths import is_plain_name
from app.security.strict_json import BrokenJson, parse_object, printable

MAX_HEADER_BYTES = 100 * 1024 * 1024  # the limit of the reference implementation
MAX_INDEX_BYTES = 32 * 1024 * 1024  # the largest published index is below 5 MiB
MAX_DIMENSIONS = 64
LFS_POINTER_START = b"version https://git-lfs"
# Bytes of one element. Types below a byte are left out: no supported method can edit them.
_DTYPE_BYTES: Mapping[str, int] = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E5M2": 1,
    "F8_E4M3": 1,
    "I16": 2,
    "U16": 2,
    "F16": 2,
    "BF16": 2,
    "I32": 4,
    "U32": 4,
    "F32": 4,
    "I64": 8,
    "U64": 8,
    "F64": 8,
}

ReadRange = Callable[[int, int], bytes]


@dataclass(frozen=True, slots=True)
class SafetensorsHeader:
    """What a checked header says: tensors, free-form metadata, and a digest of its bytes."""

    tensors: Mapping[str, TensorFact]
    metadata: Mapping[str, str]
    data_start: int
    sha256: str


@dataclass(frozen=True, slots=True)
class SafetensorsIndex:
    """A checked `model.safetensors.index.json`: which file holds which tensor."""

    weight_map: Mapping[str, str]

    @property
    def files(self) -> tuple[str, ...]:
        """The shards, sorted."""
        return tuple(sorted(set(self.weight_map.values())))


def unsafe(code: str, message: str) -> UnsafeModelFormat:
    """Make the error for one defect of a model's files; the finding points at the model."""
    return UnsafeModelFormat(message, findings=(Finding("/model", code, message),))


def read_header(read: ReadRange, size: int, *, name: str) -> SafetensorsHeader:
    """Read and check the header of the safetensors file `name` of `size` bytes.

    `read(start, end)` gives the bytes from `start` up to, not including, `end`. Nothing of the
    length a header only claims is read before that length was checked against `size`. Raises
    `UnsafeModelFormat` with the first defect found.
    """
    start = _read_exactly(read, 0, min(size, 64), name)
    if start.startswith(LFS_POINTER_START):
        raise unsafe("lfs_pointer", _lfs_message(name))
    if size < 8:
        raise unsafe(
            "safetensors_truncated",
            f"{name} has {size} bytes: too few for a header. Upload the file again.",
        )
    length = int.from_bytes(start[:8], "little")
    _check_length(length, size, name)
    raw = _read_exactly(read, 8, 8 + length, name)
    try:
        header = parse_object(raw, max_bytes=MAX_HEADER_BYTES, max_depth=4)
    except BrokenJson as exc:
        raise unsafe(
            "safetensors_header",
            f"The header of {name} cannot be read: {exc}. Save the model again with safetensors.",
        ) from exc
    metadata = _metadata(header.pop("__metadata__", {}), name)
    _check_text([*header, *metadata, *metadata.values()], name)
    data_start = 8 + length
    spans = [(*_span(key, value, name), key) for key, value in header.items()]
    _check_layout(spans, size - data_start, name)
    tensors = {
        key: TensorFact(header[key]["dtype"], tuple(header[key]["shape"]), name, end - begin)
        for begin, end, key in spans
    }
    digest = hashlib.sha256(start[:8])
    digest.update(raw)
    return SafetensorsHeader(tensors, metadata, data_start, digest.hexdigest())


def _check_text(texts: Collection[str], name: str) -> None:
    """Refuse half a surrogate pair, whose escape Python reads and the reference does not."""
    try:
        "".join(texts).encode("utf-8")
    except UnicodeEncodeError as exc:
        raise unsafe(
            "safetensors_header",
            f"The header of {name} cannot be read: a name in it holds half a character (a lone "
            "surrogate). Save the model again with safetensors.",
        ) from exc


def _read_exactly(read: ReadRange, start: int, end: int, name: str) -> bytes:
    data = read(start, end)
    if len(data) != end - start:
        raise unsafe(
            "safetensors_truncated",
            f"{name} ends before its own header says. Upload the file again.",
        )
    return data


def _lfs_message(name: str) -> str:
    return (
        f"{name} is a Git LFS pointer, not the weights. Fetch the real file with `git lfs pull` "
        "(or upload it again from a clone that has it)."
    )


def _check_length(length: int, size: int, name: str) -> None:
    if length > MAX_HEADER_BYTES:
        raise unsafe(
            "safetensors_header",
            f"{name} claims a header of {length} bytes; {MAX_HEADER_BYTES} is the limit. "
            "It is not a safetensors file, or is damaged: save the model again.",
        )
    if length > size - 8:
        raise unsafe(
            "safetensors_truncated",
            f"{name} claims a header of {length} bytes but has {size} bytes in all: it was cut "
            "short. Upload the file again.",
        )


def _metadata(value: Any, name: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise unsafe(
            "safetensors_header",
            f"The __metadata__ of {name} is not a map of strings. Save the model again with "
            "safetensors.",
        )
    return value


def _span(key: str, value: Any, name: str) -> tuple[int, int]:
    """Check one tensor's entry on its own and return where its bytes lie."""
    where = f"Tensor {printable(key)} of {name}"
    if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
        raise _bad_tensor(f"{where} must have dtype, shape and data_offsets, and nothing else")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _DTYPE_BYTES:
        raise _bad_tensor(f"{where} has the unknown dtype {printable(str(dtype))}")
    if not _are_sizes(shape) or len(shape) > MAX_DIMENSIONS:
        raise _bad_tensor(f"{where} has a shape that is not a list of whole numbers >= 0")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise _bad_tensor(f"{where} has data_offsets that are not two whole numbers >= 0")
    begin, end = offsets
    needed = _byte_count(shape, _DTYPE_BYTES[dtype])
    if end - begin != needed:
        raise _bad_tensor(f"{where} has {end - begin} bytes, but its shape and dtype need {needed}")
    return begin, end


def _are_sizes(value: Any) -> bool:
    # A bool is an int to Python, not to JSON. 2^63 is beyond any file, and keeps products small.
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 2**63 for n in value)


def _byte_count(shape: list[int], item_bytes: int) -> int:
    if 0 in shape:
        return 0
    count = item_bytes
    for size in shape:
        count *= size
    return count


def _bad_tensor(message: str) -> UnsafeModelFormat:
    return unsafe("safetensors_tensor", f"{message}. Save the model again with safetensors.")


def _check_layout(spans: list[tuple[int, int, str]], data_bytes: int, name: str) -> None:
    ordered = sorted(spans)
    for (_, end, first), (begin, _, second) in pairwise(ordered):
        if begin < end:
            raise unsafe(
                "safetensors_overlap",
                f"Tensors {printable(first)} and {printable(second)} of {name} share bytes. "
                "Save the model again with safetensors.",
            )
        if begin > end:
            raise _hole(name, f"before tensor {printable(second)}")
    if ordered and ordered[0][0] != 0:
        raise _hole(name, f"before tensor {printable(ordered[0][2])}")
    total = ordered[-1][1] if ordered else 0
    if total > data_bytes:
        raise unsafe(
            "safetensors_truncated",
            f"{name} was cut short: its tensors need {total} bytes after the header, "
            f"{data_bytes} are there. Upload the file again.",
        )
    if total < data_bytes:
        raise _hole(name, "after the last tensor")


def _hole(name: str, where: str) -> UnsafeModelFormat:
    return unsafe(
        "safetensors_hole",
        f"{name} has bytes that belong to no tensor {where}. Save the model again with "
        "safetensors.",
    )


def read_index(data: bytes, *, name: str, present: Collection[str]) -> SafetensorsIndex:
    """Check an index file against the names of the files that are `present`.

    Raises `UnsafeModelFormat` where it holds merge-conflict marks, is not JSON, points outside
    the model's folder, or names shards that are not there.
    """
    if any(data.startswith(mark) or b"\n" + mark in data for mark in (b"<<<<<<< ", b">>>>>>> ")):
        raise unsafe(
            "index_merge_conflict",
            f"{name} holds merge-conflict marks (<<<<<<<). Resolve the conflict and upload the "
            "file again.",
        )
    if data.startswith(LFS_POINTER_START):
        raise unsafe("lfs_pointer", _lfs_message(name))
    try:
        content = parse_object(data, max_bytes=MAX_INDEX_BYTES, max_depth=8)
    except BrokenJson as exc:
        raise _bad_index(name, f"cannot be read: {exc}") from exc
    weight_map = content.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise _bad_index(name, "has no weight_map")
    for shard in weight_map.values():
        if not isinstance(shard, str) or not is_plain_name(shard):
            raise _bad_index(name, f"names the file {printable(str(shard))}, not a plain name")
        if not shard.endswith(".safetensors"):
            raise _bad_index(name, f"names the file {printable(shard)}, not a safetensors file")
    missing = sorted(set(weight_map.values()) - set(present))
    if missing:
        raise unsafe(
            "index_missing_shards",
            f"{name} names {len(missing)} file(s) that are not there, the first being "
            f"{printable(missing[0])}. Upload the missing shards, or save the model again.",
        )
    return SafetensorsIndex(weight_map)


def _bad_index(name: str, defect: str) -> UnsafeModelFormat:
    return unsafe("index_invalid", f"{name} {defect}. Save the model again with safetensors.")
