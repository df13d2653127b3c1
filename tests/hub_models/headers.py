"""Write checkpoints that are all header: the weights are holes in sparse files."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.model_files import tokenizer_json

_ITEM_BYTES = {"F32": 4, "F16": 2, "BF16": 2, "BOOL": 1, "U8": 1, "F8_E4M3": 1, "I32": 4}

_BUFFERS = ("attn.bias", "attention.bias", "masked_bias", "causal_mask", "inv_freq")
TensorType = tuple[str, tuple[int, ...]]


@dataclass(frozen=True)
class HubModel:
    """One published model.

    `tensors` holds a tensor a line: a name, its sizes, and its type where it is not `dtype`. A
    range such as `{0-21}` in a name stands for each number in it, and the product of two for each
    pair. `shards` is the number of weight files.
    """

    name: str
    config: Mapping[str, Any]
    tensors: str
    dtype: str
    shards: int = 1
    files: Mapping[str, bytes] = field(default_factory=dict)
    has_safetensors: bool = True
    adapter: Mapping[str, Any] | None = None


def linear(module: str, rows: int, columns: int) -> str:
    """Write the lines of a linear map with a bias."""
    return f"{module}.weight {rows} {columns}\n{module}.bias {rows}\n"


def norms(prefix: str, size: int, *names: str) -> str:
    """Write the lines of norms with a weight and a bias."""
    return "".join(f"{prefix}{name}.weight {size}\n{prefix}{name}.bias {size}\n" for name in names)


def write_hub_model(folder: Path, model: HubModel) -> None:
    """Write a model's folder; the weight files have their real size and take no space."""
    folder.mkdir(parents=True)
    if model.adapter is not None:
        (folder / "adapter_config.json").write_text(json.dumps(model.adapter))
        (folder / "adapter_model.safetensors").touch()
        return
    files = {
        "config.json": json.dumps(model.config).encode(),
        "tokenizer.json": _tokenizer(),
        "tokenizer_config.json": b'{"tokenizer_class": "PreTrainedTokenizerFast"}',
        **model.files,
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    if not model.has_safetensors:
        (folder / "pytorch_model.bin").write_bytes(b"pickle")
        return
    tensors = dict(tensors_of(model))
    if model.shards == 1:
        _write_weights(folder / "model.safetensors", tensors)
        return
    names = list(tensors)
    each = math.ceil(len(names) / model.shards)
    weight_map = {}
    for number in range(model.shards):
        file = f"model-{number + 1:05}-of-{model.shards:05}.safetensors"
        part = names[number * each : (number + 1) * each]
        _write_weights(folder / file, {name: tensors[name] for name in part})
        weight_map.update(dict.fromkeys(part, file))
    total = sum(_size(tensor) for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def _tokenizer() -> bytes:
    """Make a tokenizer that knows `a` and `b`, however a family splits text into words."""
    return tokenizer_json().replace(b'"word2"', b'"a"').replace(b'"word3"', b'"b"')


def tensors_of(model: HubModel) -> Iterator[tuple[str, TensorType]]:
    """Name every tensor of a model, with its type and shape."""
    for line in filter(None, map(str.strip, model.tensors.splitlines())):
        name, *words = line.split()
        dtype = words.pop() if words and not words[-1].isdecimal() else model.dtype
        for full_name in _expanded(name):
            yield full_name, (dtype, tuple(map(int, words)))


def size_of(model: HubModel) -> int:
    """Count the bytes of a model's weights."""
    return sum(_size(tensor) for _, tensor in tensors_of(model))


def parameters_of(model: HubModel) -> int:
    """Count the parameters of a model: masks and rotary frequencies are none."""
    return sum(
        math.prod(shape) for name, (_, shape) in tensors_of(model) if not name.endswith(_BUFFERS)
    )


def _expanded(name: str) -> Iterator[str]:
    span = re.search(r"\{(\d+)-(\d+)\}", name)
    if span is None:
        yield name
        return
    for number in range(int(span[1]), int(span[2]) + 1):
        yield from _expanded(f"{name[: span.start()]}{number}{name[span.end() :]}")


def _size(tensor: TensorType) -> int:
    dtype, shape = tensor
    return _ITEM_BYTES[dtype] * math.prod(shape)


def _write_weights(path: Path, tensors: Mapping[str, TensorType]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + _size(tensor)
        header[name] = {"dtype": tensor[0], "shape": tensor[1], "data_offsets": [begin, end]}
    raw = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        file.truncate(8 + len(raw) + end)
