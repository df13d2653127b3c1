"""Edited copies of safetensors files, against the same edit done in memory."""

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from app.domain.errors import JobErrorCode, JobFailure
from app.domain.models import FileFact
from workers.models.streaming import ZERO, Edit, Gather, Scale, tensor_blocks, write_shard
from workers.models.tensor_files import (
    BLOCK_BYTES,
    Shard,
    open_checkpoint,
    row_blocks,
    scaled,
    to_float32,
)
from workers.runtime.context import Stopped

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int8)
FLOATS = DTYPES[:4]
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The raw elements, so that NaN equals itself and zero keeps its sign."""
    return tensor.contiguous().view(BITS[tensor.element_size()])


def save_model(folder: Path, tensors: dict[str, torch.Tensor], **metadata: str) -> Shard:
    save_file(tensors, folder / "model.safetensors", metadata=metadata or None)
    (folder / "config.json").write_text("{}")
    return open_checkpoint(folder).shards[0]


def write(shard: Shard, target: Path, edits: dict[str, Edit], **options: Any) -> FileFact:
    calls = {"should_stop": lambda: False, "on_bytes": lambda count: None, **options}
    return write_shard(shard, target, edits, **calls)


def header_of(path: Path) -> tuple[int, dict[str, Any]]:
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    return length, json.loads(raw[8 : 8 + length])


@st.composite
def random_bytes_tensors(draw: st.DrawFn) -> dict[str, torch.Tensor]:
    tensors = {}
    for number in range(draw(st.integers(1, 5))):
        dtype = draw(st.sampled_from(DTYPES))
        shape = draw(st.lists(st.integers(1, 7), min_size=1, max_size=2))
        count = int(np.prod(shape)) * dtype.itemsize
        raw = bytearray(draw(st.binary(min_size=count, max_size=count)))
        tensors[f"t{number}"] = torch.frombuffer(raw, dtype=dtype).reshape(shape).clone()
    return tensors


@st.composite
def gathers(draw: st.DrawFn, tensor: torch.Tensor) -> Gather:
    axis = draw(st.integers(0, tensor.dim() - 1))
    indices = st.integers(ZERO, tensor.shape[axis] - 1)
    sources = draw(st.lists(indices, min_size=1, max_size=10))
    return Gather(1 if axis else 0, np.array(sources, dtype=np.int64))


def gathered(tensor: torch.Tensor, edit: Gather) -> torch.Tensor:
    """Do the edit in memory, element by element."""
    parts = [
        torch.zeros_like(tensor.select(edit.axis, 0))
        if index == ZERO
        else tensor.select(edit.axis, int(index))
        for index in edit.sources
    ]
    return torch.stack([bits(part) for part in parts], dim=edit.axis)


# No deadline: the first example pays for imports.
@settings(max_examples=60, deadline=None)
@given(random_bytes_tensors(), st.data())
def test_gather_equals_the_edit_in_memory_bit_for_bit(
    tensors: dict[str, torch.Tensor], data: st.DataObject
) -> None:
    chosen = data.draw(st.sets(st.sampled_from(sorted(tensors))))
    edits: dict[str, Edit] = {name: data.draw(gathers(tensors[name])) for name in sorted(chosen)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shard = save_model(folder, tensors)

        write(shard, folder / "edited.safetensors", edits)

        result = load_file(folder / "edited.safetensors")
        assert result.keys() == tensors.keys()
        for key, tensor in tensors.items():
            edit = edits.get(key)
            expected = gathered(tensor, edit) if isinstance(edit, Gather) else bits(tensor)
            assert torch.equal(bits(result[key]), expected)
            assert result[key].dtype == tensor.dtype


@settings(max_examples=60, deadline=None)
@given(random_bytes_tensors(), st.integers(1, 40), st.data())
def test_edited_bytes_do_not_depend_on_the_size_of_blocks(
    tensors: dict[str, torch.Tensor], block_bytes: int, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as name:
        shard = save_model(Path(name), tensors)
        for stored in shard.tensors:
            tensor = tensors[stored.name]
            edit = data.draw(gathers(tensor))
            expected = gathered(tensor, edit)
            longest_row = max(matrix[0].nbytes for matrix in (tensor, expected))
            with shard.path.open("rb") as file:
                blocks = list(tensor_blocks(file, stored, edit, block_bytes=block_bytes))

            assert b"".join(blocks) == expected.numpy().tobytes()
            assert max(map(len, blocks)) <= max(block_bytes, longest_row)


@settings(max_examples=30, deadline=None)
@given(random_bytes_tensors())
def test_copy_without_edits_keeps_every_byte_of_data(tensors: dict[str, torch.Tensor]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shard = save_model(folder, tensors)

        fact = write(shard, folder / "copy.safetensors", {})

        old, new = (folder / n for n in ("model.safetensors", "copy.safetensors"))
        size = sum(t.numel() * t.element_size() for t in tensors.values())
        assert old.read_bytes()[-size:] == new.read_bytes()[-size:]
        assert fact.size_bytes == new.stat().st_size == 8 + header_of(new)[0] + size


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", FLOATS)
def test_scale_changes_the_named_neurons_only(
    tmp_path: Path, dtype: torch.dtype, axis: int
) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(6, 5, dtype=torch.float64).to(dtype)
    shard = save_model(tmp_path, {"down": matrix})

    edit = Scale(1 if axis else 0, np.array([1, 3]), 0.3)
    write(shard, tmp_path / "edited.safetensors", {"down": edit})

    # Reference: torch multiplies float16 and bfloat16 in float32 and rounds once.
    wide = matrix if dtype == torch.float64 else matrix.float()
    expected = wide.clone()
    expected.index_copy_(
        axis, torch.tensor([1, 3]), wide.index_select(axis, torch.tensor([1, 3])) * 0.3
    )
    result = load_file(tmp_path / "edited.safetensors")["down"]
    assert torch.equal(bits(result), bits(expected.to(dtype)))


@given(st.lists(st.integers(0, 2**16 - 1), min_size=1, max_size=20), st.floats(0, 1, width=32))
def test_bfloat16_is_rounded_like_torch(raw: list[int], factor: float) -> None:
    words = np.array(raw, dtype=np.uint16)
    tensor = torch.from_numpy(words.view(np.int16)).view(torch.bfloat16)
    expected = (tensor.float() * factor).to(torch.bfloat16)

    result = torch.from_numpy(scaled(words, "BF16", factor).view(np.int16)).view(torch.bfloat16)

    assert torch.allclose(result, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("dtype", "name"), list(zip(FLOATS, ("F32", "F16", "BF16", "F64"), strict=True))
)
def test_raw_elements_are_read_as_float32(dtype: torch.dtype, name: str) -> None:
    tensor = torch.tensor([0.1, -3.5, 65000.0]).to(dtype)
    raw = bits(tensor).numpy().view(f"<u{tensor.element_size()}")

    np.testing.assert_array_equal(to_float32(raw, name), tensor.float().numpy())


def test_metadata_is_kept_and_names_the_framework(tmp_path: Path) -> None:
    shard = save_model(tmp_path, {"a": torch.zeros(3)}, author="someone")

    write(shard, tmp_path / "copy.safetensors", {})

    _, header = header_of(tmp_path / "copy.safetensors")
    assert header["__metadata__"] == {"format": "pt", "author": "someone"}


def test_header_is_padded_to_a_multiple_of_eight(tmp_path: Path) -> None:
    for length in range(1, 9):
        folder = tmp_path / str(length)
        folder.mkdir()
        shard = save_model(folder, {"n" * length: torch.zeros(1)})

        write(shard, folder / "copy.safetensors", {})

        assert header_of(folder / "copy.safetensors")[0] % 8 == 0


def test_same_input_and_plan_give_the_same_bytes(tmp_path: Path) -> None:
    shard = save_model(tmp_path, {"a": torch.randn(4, 4), "b": torch.randn(4)})
    edits: dict[str, Edit] = {"a": Gather(1, np.array([0, 3]))}

    facts = [write(shard, tmp_path / f"{n}.safetensors", edits) for n in range(2)]

    assert facts[0].sha256 == facts[1].sha256


def test_digest_is_that_of_the_written_file(tmp_path: Path) -> None:
    shard = save_model(tmp_path, {"a": torch.randn(4, 4)})

    fact = write(shard, tmp_path / "copy.safetensors", {"a": Gather(0, np.array([2, ZERO]))})

    written = (tmp_path / "copy.safetensors").read_bytes()
    assert fact == FileFact("copy.safetensors", len(written), hashlib.sha256(written).hexdigest())


def test_tensor_larger_than_a_block_is_edited_across_blocks(tmp_path: Path) -> None:
    columns = 1024
    rows = BLOCK_BYTES // columns + 3  # int8: one byte an element
    matrix = torch.arange(rows * columns, dtype=torch.int32).to(torch.int8).reshape(rows, columns)
    shard = save_model(tmp_path, {"a": matrix})
    with shard.path.open("rb") as file:
        assert len(list(row_blocks(file, shard.tensors[0]))) == 2

    write(shard, tmp_path / "edited.safetensors", {"a": Gather(1, np.array([5, ZERO, 1023]))})

    result = load_file(tmp_path / "edited.safetensors")["a"]
    expected = torch.stack([matrix[:, 5], torch.zeros_like(matrix[:, 5]), matrix[:, 1023]], dim=1)
    assert torch.equal(result, expected)


def test_writing_stops_between_blocks(tmp_path: Path) -> None:
    shard = save_model(tmp_path, {"a": torch.zeros(2), "b": torch.zeros(2)})
    answers = iter([False, False, True])

    with pytest.raises(Stopped):
        write(shard, tmp_path / "copy.safetensors", {}, should_stop=lambda: next(answers))


def test_file_that_shrinks_while_read_is_reported(tmp_path: Path) -> None:
    shard = save_model(tmp_path, {"a": torch.zeros(100)})
    with shard.path.open("r+b") as file:
        file.truncate(shard.path.stat().st_size - 8)

    with pytest.raises(JobFailure) as failure:
        write(shard, tmp_path / "copy.safetensors", {})

    assert failure.value.code == JobErrorCode.UNSAFE_MODEL_FORMAT


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"config.json": "{}"},
        {"config.json": "{", "model.safetensors": ""},
        {"config.json": "{}", "model.safetensors": "version https://git-lfs"},
        {
            "config.json": "{}",
            "model.safetensors.index.json": '{"weight_map": {"a": "x.safetensors"}}',
        },
        {"config.json": "{}", "model.safetensors.index.json": '{"weight_map": {"a": "../x"}}'},
    ],
    ids=["empty", "no weights", "bad config", "lfs pointer", "missing shard", "path in index"],
)
def test_unreadable_checkpoint_is_reported(tmp_path: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    with pytest.raises(JobFailure) as failure:
        open_checkpoint(tmp_path)

    assert failure.value.code == JobErrorCode.UNSAFE_MODEL_FORMAT
