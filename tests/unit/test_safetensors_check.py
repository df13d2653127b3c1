"""The safetensors checker: every defect has its own message, and nothing makes it crash."""

import json
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.domain.errors import UnsafeModelFormat
from app.security.safetensors_check import (
    MAX_HEADER_BYTES,
    SafetensorsHeader,
    read_header,
    read_index,
)
from tests.model_files import safetensors, with_header

NAME = "model.safetensors"
LFS_POINTER = (
    b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 1000000\n"
)


def check(data: bytes, *, size: int | None = None) -> SafetensorsHeader:
    return read_header(
        lambda start, end: data[start:end], len(data) if size is None else size, name=NAME
    )


def code_of(action: Callable[[], object]) -> str:
    with pytest.raises(UnsafeModelFormat) as caught:
        action()
    assert len(caught.value.findings) == 1
    assert caught.value.findings[0].message == caught.value.detail
    return caught.value.findings[0].code


def tensor(**changes: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24], **changes}


def test_header_of_a_good_file_is_read() -> None:
    data = safetensors({"a": [2, 3], "empty": [0, 7], "scalar": []})

    header = check(data)

    assert {
        name: (fact.dtype, fact.shape, fact.size_bytes) for name, fact in header.tensors.items()
    } == {
        "a": ("F32", (2, 3), 24),
        "empty": ("F32", (0, 7), 0),
        "scalar": ("F32", (), 4),
    }
    assert header.metadata == {"format": "pt"}
    assert len(data) - header.data_start == 28


def test_digest_changes_with_the_header_only() -> None:
    plain = check(safetensors({"a": [2]}))

    assert check(safetensors({"a": [2]}, fill=7)).sha256 == plain.sha256
    assert check(safetensors({"b": [2]})).sha256 != plain.sha256


DEFECTS: dict[str, tuple[bytes, str]] = {
    "git lfs pointer": (LFS_POINTER, "lfs_pointer"),
    "nothing at all": (b"", "safetensors_truncated"),
    "too short for a length": (b"\0\0\0", "safetensors_truncated"),
    "claims more than the limit": (
        (MAX_HEADER_BYTES + 1).to_bytes(8, "little") + b"{}",
        "safetensors_header",
    ),
    "header longer than the file": ((100).to_bytes(8, "little") + b"{}", "safetensors_truncated"),
    "header is not JSON": (with_header(b"{", b""), "safetensors_header"),
    "header is not UTF-8": (with_header(b'{"\xff": 1}', b""), "safetensors_header"),
    "a name holds half a character": (
        with_header({"a\ud800": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}, b"1"),
        "safetensors_header",
    ),
    "the metadata hold half a character": (
        with_header({"__metadata__": {"a": "\udc00"}}, b""),
        "safetensors_header",
    ),
    "header is a list": (with_header([], b""), "safetensors_header"),
    "header holds NaN": (with_header(b'{"a": NaN}', b""), "safetensors_header"),
    "header is nested deeply": (with_header(b"[" * 100_000, b""), "safetensors_header"),
    "header has a number too long to read": (
        with_header(b'{"a": ' + b"9" * 5000 + b"}", b""),
        "safetensors_header",
    ),
    "a name twice": (
        with_header(b'{"a": {}, "a": {}}', b""),
        "safetensors_header",
    ),
    "a key twice inside": (
        with_header(
            b'{"a": {"dtype": "F32", "dtype": "I8", "shape": [], "data_offsets": [0, 4]}}', b"1234"
        ),
        "safetensors_header",
    ),
    "metadata is not text": (
        with_header({"__metadata__": {"a": 1}}, b""),
        "safetensors_header",
    ),
    "entry is not an object": (with_header({"a": 3}, b""), "safetensors_tensor"),
    "entry lacks offsets": (
        with_header({"a": {"dtype": "F32", "shape": []}}, b"1234"),
        "safetensors_tensor",
    ),
    "entry has another key": (with_header({"a": tensor(x=1)}, bytes(24)), "safetensors_tensor"),
    "dtype unknown": (with_header({"a": tensor(dtype="F128")}, bytes(24)), "safetensors_tensor"),
    "dtype not text": (with_header({"a": tensor(dtype=["F32"])}, bytes(24)), "safetensors_tensor"),
    "shape negative": (with_header({"a": tensor(shape=[-2, -3])}, bytes(24)), "safetensors_tensor"),
    "shape of truth values": (
        with_header({"a": tensor(shape=[True], data_offsets=[0, 4])}, b"1234"),
        "safetensors_tensor",
    ),
    "shape of fractions": (
        with_header({"a": tensor(shape=[6.0, 1])}, bytes(24)),
        "safetensors_tensor",
    ),
    "shape overflows 64 bits": (
        with_header({"a": tensor(shape=[2**62, 2**62], data_offsets=[0, 0])}, b""),
        "safetensors_tensor",
    ),
    "size does not fit the shape": (
        with_header({"a": tensor(data_offsets=[0, 20])}, bytes(20)),
        "safetensors_tensor",
    ),
    "offsets reversed": (
        with_header({"a": tensor(data_offsets=[24, 0])}, bytes(24)),
        "safetensors_tensor",
    ),
    "tensors overlap": (
        with_header({"a": tensor(), "b": tensor(data_offsets=[12, 36])}, bytes(36)),
        "safetensors_overlap",
    ),
    "hole between tensors": (
        with_header({"a": tensor(), "b": tensor(data_offsets=[28, 52])}, bytes(52)),
        "safetensors_hole",
    ),
    "hole at the start": (
        with_header({"a": tensor(data_offsets=[4, 28])}, bytes(28)),
        "safetensors_hole",
    ),
    "bytes after the last tensor": (with_header({"a": tensor()}, bytes(25)), "safetensors_hole"),
    "bytes without any tensor": (with_header({}, bytes(1)), "safetensors_hole"),
    "data cut short": (with_header({"a": tensor()}, bytes(23)), "safetensors_truncated"),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_defect_is_named(defect: str) -> None:
    data, expected = DEFECTS[defect]

    assert code_of(lambda: check(data)) == expected


@pytest.mark.parametrize("defect", DEFECTS)
def test_message_says_what_to_do(defect: str) -> None:
    with pytest.raises(UnsafeModelFormat) as caught:
        check(DEFECTS[defect][0])

    assert NAME in caught.value.detail
    assert any(word in caught.value.detail for word in ("again", "Fetch the real file"))


def test_source_that_gives_less_than_its_size_is_refused() -> None:
    data = safetensors({"a": [2]})

    assert code_of(lambda: check(data[:20], size=len(data))) == "safetensors_truncated"


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(UnsafeModelFormat):
        check(data)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=10,
)
ENTRIES = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "BF16", "I8", "F8_E4M3", "X"]) | JSON_VALUES,
        "shape": st.lists(st.integers(-2, 4), max_size=3) | JSON_VALUES,
        "data_offsets": st.lists(st.integers(-2, 64), min_size=2, max_size=2) | JSON_VALUES,
    }
)


@given(st.dictionaries(st.text(max_size=6), ENTRIES | JSON_VALUES, max_size=4), st.integers(0, 80))
def test_any_header_is_read_or_refused(header: dict[str, Any], data_bytes: int) -> None:
    data = with_header(header, bytes(data_bytes))

    try:
        found = check(data)
    except UnsafeModelFormat:
        return

    assert sum(fact.size_bytes for fact in found.tensors.values()) == data_bytes


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=8).filter(lambda name: name != "__metadata__"),
        st.lists(st.integers(0, 5), max_size=4),
        max_size=5,
    )
)
def test_every_well_formed_file_is_accepted(shapes: dict[str, list[int]]) -> None:
    header = check(safetensors(shapes))

    assert {name: list(fact.shape) for name, fact in header.tensors.items()} == shapes


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**50))
@example(1000, 108)
def test_length_that_is_only_claimed_is_never_read(claimed: int, size: int) -> None:
    data = claimed.to_bytes(8, "little") + bytes(100)
    asked: list[int] = []

    def read(start: int, end: int) -> bytes:
        asked.append(end - start)
        return data[start:end]

    with pytest.raises(UnsafeModelFormat):
        read_header(read, size, name=NAME)

    assert max(asked) <= min(max(size, 64), MAX_HEADER_BYTES)


def test_claimed_length_reserves_no_memory() -> None:
    data = MAX_HEADER_BYTES.to_bytes(8, "little") + b"{}"
    tracemalloc.start()
    try:
        with pytest.raises(UnsafeModelFormat):
            check(data, size=2**40)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 1024 * 1024


INDEX = "model.safetensors.index.json"
INDEX_DEFECTS: dict[str, tuple[bytes, str]] = {
    "merge conflict": (
        b'{"weight_map": {\n<<<<<<< HEAD\n"a": "a.safetensors"\n=======\n>>>>>>> other\n}}',
        "index_merge_conflict",
    ),
    "git lfs pointer": (LFS_POINTER, "lfs_pointer"),
    "not JSON": (b"{", "index_invalid"),
    "no weight map": (b"{}", "index_invalid"),
    "empty weight map": (b'{"weight_map": {}}', "index_invalid"),
    "file outside the folder": (
        b'{"weight_map": {"a": "../other.safetensors"}}',
        "index_invalid",
    ),
    "absolute file": (b'{"weight_map": {"a": "/etc/passwd.safetensors"}}', "index_invalid"),
    "file that is not text": (b'{"weight_map": {"a": ["x"]}}', "index_invalid"),
    "file of another kind": (b'{"weight_map": {"a": "pytorch_model.bin"}}', "index_invalid"),
}


@pytest.mark.parametrize("defect", INDEX_DEFECTS)
def test_index_defect_is_named(defect: str) -> None:
    data, expected = INDEX_DEFECTS[defect]

    assert code_of(lambda: read_index(data, name=INDEX, present=set())) == expected


def test_missing_shards_are_counted_and_the_first_is_named() -> None:
    shards = {f"t{n}": f"model-{n}-of-3.safetensors" for n in (3, 1, 2)}
    data = json.dumps({"weight_map": shards}).encode()

    with pytest.raises(UnsafeModelFormat) as caught:
        read_index(data, name=INDEX, present={"model-1-of-3.safetensors"})

    assert caught.value.findings[0].code == "index_missing_shards"
    assert "2 file(s)" in caught.value.detail
    assert "model-2-of-3.safetensors" in caught.value.detail


@given(st.binary(max_size=200) | JSON_VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_index_is_read_or_refused(data: bytes) -> None:
    with suppress(UnsafeModelFormat):
        read_index(data, name=INDEX, present={"a.safetensors"})
