"""The checker beside the library: it takes nothing that the library refuses, and all it writes."""

import json
import random
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.domain.errors import MethodModelIncompatible, UnsafeModelFormat
from app.security.model_config import clean_config, clean_file, parse_config
from app.security.safetensors_check import SafetensorsHeader, read_header, read_index
from app.security.strict_json import MAX_PARTS
from tests.model_files import CONFIG, with_header

NAME = "model.safetensors"
MORE = settings(max_examples=400, deadline=None)
# What the checker leaves out although the library reads it: no method edits them.
NUMPY_TYPES = ("bool", "u1", "i1", "u2", "i2", "f2", "u4", "i4", "f4", "u8", "i8", "f8")


def check(data: bytes) -> SafetensorsHeader:
    return read_header(lambda start, end: data[start:end], len(data), name=NAME)


def is_accepted(data: bytes) -> bool:
    try:
        check(data)
    except UnsafeModelFormat:
        return False
    return True


def is_read_by_library(data: bytes) -> bool:
    try:
        safetensors.deserialize(data)
    except safetensors.SafetensorError:
        return False
    return True


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
JSON_VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
SIZES = st.integers(-2, 5) | st.sampled_from([2**31, 2**32, 2**62, 2**63, 2**64, 2**65, -(2**63)])
DTYPES = st.sampled_from(
    ["F32", "BF16", "F16", "I8", "U8", "BOOL", "F64", "I64", "F8_E4M3", "F8_E5M2", "F4", "F8_E8M0"]
) | st.text(max_size=4)
ENTRIES = st.fixed_dictionaries(
    {
        "dtype": DTYPES | JSON_VALUES,
        "shape": st.lists(SIZES, max_size=4) | JSON_VALUES,
        "data_offsets": st.lists(SIZES | st.integers(0, 64), min_size=2, max_size=2) | JSON_VALUES,
    },
    optional={"extra": JSON_VALUES},
)
NAMES = st.text(max_size=5) | st.just("__metadata__")


@st.composite
def good_headers(draw: st.DrawFn) -> tuple[dict[str, Any], int]:
    """A header without a fault, to be damaged by one change."""
    header: dict[str, Any] = {}
    end = 0
    for name in draw(st.lists(st.text(max_size=5), max_size=4, unique=True)):
        if name == "__metadata__":
            continue
        shape = draw(st.lists(st.integers(0, 3), max_size=3))
        begin, end = end, end + 4 * int(np.prod(shape, dtype=np.int64))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    return header, end


@st.composite
def damaged_headers(draw: st.DrawFn) -> tuple[dict[str, Any], int]:
    header, size = draw(good_headers())
    if header:
        name = draw(st.sampled_from(sorted(header)))
        part = draw(st.sampled_from(["dtype", "shape", "data_offsets", "whole"]))
        if part == "whole":
            header[name] = draw(ENTRIES | JSON_VALUES)
        elif part == "dtype":
            header[name][part] = draw(DTYPES)
        else:
            values = list(header[name][part])
            index = draw(st.integers(0, max(0, len(values) - 1)))
            values[index : index + 1] = draw(st.lists(SIZES, max_size=2))
            header[name][part] = values
    return header, size + draw(st.sampled_from([0, 0, 0, 1, -1, 4]))


@MORE
@given(
    st.dictionaries(NAMES, ENTRIES | JSON_VALUES, max_size=3).flatmap(
        lambda header: st.tuples(st.just(header), st.integers(0, 80))
    )
    | good_headers()
    | damaged_headers()
)
@example(({"a": {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 0]}}, 0))
@example(({"a": {"dtype": "F32", "shape": [2**63, 0], "data_offsets": [0, 0]}}, 0))
@example(({"a": {"dtype": "F32", "shape": [], "data_offsets": [2**64 - 4, 2**64]}}, 4))
@example(({"__metadata__": {"a": None}}, 0))
@example(({"__metadata__": None}, 0))
def test_what_the_library_refuses_is_refused(header: tuple[dict[str, Any], int]) -> None:
    content, size = header
    data = with_header(json.dumps(content).encode(), bytes(max(0, size)))

    if is_accepted(data):
        assert is_read_by_library(data)


@MORE
@given(st.binary(max_size=120), st.binary(max_size=40))
def test_header_of_any_bytes_the_library_refuses_is_refused(raw: bytes, data: bytes) -> None:
    for content in (with_header(raw, data), raw + data):
        if is_accepted(content):
            assert is_read_by_library(content)


@MORE
@given(good_headers(), st.randoms(use_true_random=False))
def test_file_with_a_flipped_byte_is_no_worse_than_the_library_takes(
    header: tuple[dict[str, Any], int], chance: random.Random
) -> None:
    data = bytearray(with_header(json.dumps(header[0]).encode(), bytes(header[1])))
    for _ in range(chance.randint(1, 3)):
        data[chance.randrange(len(data))] = chance.randrange(256)

    if is_accepted(bytes(data)):
        assert is_read_by_library(bytes(data))


@given(
    st.dictionaries(
        st.text(max_size=6).filter(lambda name: name != "__metadata__"),
        st.tuples(st.sampled_from(NUMPY_TYPES), st.lists(st.integers(0, 4), max_size=5)),
        min_size=1,  # without tensors safetensors 0.8 writes metadata that is no JSON
        max_size=5,
    ),
    st.none() | st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=3),
)
def test_what_the_library_wrote_is_accepted(
    shapes: dict[str, tuple[str, list[int]]], metadata: dict[str, str] | None
) -> None:
    tensors = {name: np.zeros(shape, dtype) for name, (dtype, shape) in shapes.items()}

    header = check(safetensors.numpy.save(tensors, metadata))

    assert {name: fact.shape for name, fact in header.tensors.items()} == {
        name: array.shape for name, array in tensors.items()
    }
    assert sum(fact.size_bytes for fact in header.tensors.values()) == sum(
        array.nbytes for array in tensors.values()
    )


def peak_of(action: Callable[[], object]) -> int:
    """Bytes that were allocated at most while `action` ran."""
    tracemalloc.start()
    try:
        with suppress(UnsafeModelFormat):
            action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def large_file() -> bytes:
    entry = {"dtype": "F32", "shape": [2**20], "data_offsets": [0, 2**22]}
    return with_header({"a": entry}, bytes(2**22))


BOMBS: dict[str, bytes] = {
    "header length of 2^64": b"\xff" * 8 + bytes(2**20),
    "header length of the limit": (100 * 2**20).to_bytes(8, "little") + bytes(2**20),
    "tensor of 2^62 elements": with_header(
        {"a": {"dtype": "F32", "shape": [2**62], "data_offsets": [0, 2**64]}}, bytes(2**20)
    ),
    "good file": large_file(),
    "cut file": large_file()[:-1],
    "zeros": bytes(2**22),
    "one long name": with_header({"a" * 2**20: 1}, bytes(2**20)),
    "spaces": with_header(b" " * 2**20, b""),
    "number of a million digits": with_header(b'{"a": ' + b"9" * 2**20 + b"}", b""),
    "brackets": with_header(b'{"a":' + b"[" * 2**20, b""),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_check_takes_at_most_twice_the_file_in_memory(bomb: str) -> None:
    data = BOMBS[bomb]

    peak = peak_of(lambda: check(data))

    # Half a MiB for the parser itself, which small files would not leave room for.
    assert peak <= 2 * len(data) + 512 * 1024


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=2000), st.integers(0, 2**64 - 1))
def test_no_file_makes_the_check_allocate_more_than_it_is_long(tail: bytes, claimed: int) -> None:
    data = claimed.to_bytes(8, "little") + tail

    assert peak_of(lambda: check(data)) < 512 * 1024


DENSE: dict[str, bytes] = {
    "lists": b'{"a":[' + b"[]," * 2**21 + b"[]]}",
    "objects": b"{" + b",".join(b'"%x":{}' % n for n in range(2**19 * 3)) + b"}",
    "numbers": b'{"a":[' + b"999," * 2**20 + b"9]}",
}


@pytest.mark.parametrize("kind", DENSE)
def test_header_that_is_all_brackets_takes_no_more_memory_than_it_is_long(kind: str) -> None:
    """Read as it is, it would become 20 times its size in Python objects."""
    data = with_header(DENSE[kind], b"")

    assert peak_of(lambda: check(data)) <= 2 * len(data)


def test_header_of_as_many_tensors_as_models_have_is_read() -> None:
    """The largest published models have some 20,000."""
    entry = '"model.layers.%d.weight":{"dtype":"F32","shape":[1,1],"data_offsets":[%d,%d]}'
    raw = ",".join(entry % (n, 4 * n, 4 * n + 4) for n in range(50_000)).encode()

    assert len(check(with_header(b"{" + raw + b"}", bytes(4 * 50_000))).tensors) == 50_000
    assert raw.count(b",") + raw.count(b"{") + raw.count(b"[") < MAX_PARTS / 2


INDEX_VALUES = st.text(max_size=6) | st.sampled_from(
    ["a.safetensors", "../a.safetensors", "/a.safetensors", "a/b.safetensors", "a.bin"]
)
CONFIGS = st.dictionaries(
    st.sampled_from([*CONFIG, "auto_map", "_attn_implementation", "quantization_config", "x"]),
    JSON_VALUES,
    max_size=6,
)


@MORE
@given(
    st.binary(max_size=100)
    | st.dictionaries(
        st.sampled_from(["weight_map", "metadata", "x"]),
        JSON_VALUES | st.dictionaries(st.text(max_size=4), INDEX_VALUES | JSON_VALUES, max_size=4),
        max_size=3,
    ).map(lambda content: json.dumps(content).encode())
)
def test_index_names_only_files_that_are_there(data: bytes) -> None:
    with suppress(UnsafeModelFormat):
        assert read_index(data, name="index", present={"a.safetensors"}).files == ("a.safetensors",)


@MORE
@given(st.binary(max_size=100) | CONFIGS.map(lambda content: json.dumps(content).encode()))
def test_config_of_any_bytes_is_cleaned_or_refused(data: bytes) -> None:
    with suppress(UnsafeModelFormat, MethodModelIncompatible):
        cleaned = clean_config(parse_config(data))
        assert not {"auto_map", "_attn_implementation"} & cleaned.config.keys()
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        with suppress(UnsafeModelFormat, MethodModelIncompatible):
            again = clean_file(name, data)
            assert "auto_map" not in json.loads(again)
