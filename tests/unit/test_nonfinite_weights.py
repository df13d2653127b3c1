"""Weights that are not finite are found in every float type, wherever they lie."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from workers.models import nonfinite
from workers.models.nonfinite import NonfiniteWeights, find_nonfinite
from workers.runtime.context import Stopped

FLOATS = (
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e5m2,
    torch.float8_e4m3fn,
)
ALL_BITS = {1: torch.uint8, 2: torch.int16}


def scan(folder: Path) -> NonfiniteWeights:
    return find_nonfinite(folder, should_stop=lambda: False, on_bytes=lambda _count: None)


def save(folder: Path, tensors: dict[str, torch.Tensor], name: str = "model.safetensors") -> None:
    save_file(tensors, folder / name)


@pytest.mark.parametrize("dtype", [dtype for dtype in FLOATS if dtype.itemsize in ALL_BITS])
def test_of_all_values_of_a_type_those_are_found_that_torch_calls_not_finite(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    bits = ALL_BITS[dtype.itemsize]
    every = torch.arange(2 ** (8 * dtype.itemsize)).to(bits).view(dtype)
    expected = int((~torch.isfinite(every.float())).sum())
    save(tmp_path, {"every": every})

    assert expected > 0
    assert scan(tmp_path) == NonfiniteWeights(expected, ("every",))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_one_bad_weight_is_found_beside_the_largest_numbers(
    tmp_path: Path, dtype: torch.dtype, value: float
) -> None:
    limits = torch.finfo(dtype)
    good = torch.tensor([limits.max, limits.min, limits.tiny, -0.0, 0.0], dtype=dtype)
    bad = good.clone()
    bad[3] = value
    save(tmp_path, {"good": good, "bad": bad})

    assert scan(tmp_path) == NonfiniteWeights(1, ("bad",))


@pytest.mark.parametrize("dtype", FLOATS[:4])
def test_a_sound_model_has_none(tmp_path: Path, dtype: torch.dtype) -> None:
    limits = torch.finfo(dtype)
    ends = torch.tensor([limits.max, limits.min], dtype=dtype)
    save(tmp_path, {"ends": ends, "empty": torch.zeros(0, dtype=dtype)})

    assert scan(tmp_path) == NonfiniteWeights(0, ())


def test_whole_numbers_are_finite(tmp_path: Path) -> None:
    save(tmp_path, {"mask": torch.full((9,), -1, dtype=torch.int32), "b": torch.ones(3).bool()})

    assert scan(tmp_path).count == 0


def test_every_shard_and_every_block_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nonfinite, "_BLOCK_BYTES", 16)
    seen = []
    for number, name in enumerate(["b", "a"]):
        weights = torch.zeros(50)
        weights[7], weights[49] = torch.inf, torch.nan
        save(tmp_path, {name: weights, f"{name}.sound": torch.ones(5)}, f"m-{number}.safetensors")

    found = find_nonfinite(tmp_path, should_stop=lambda: False, on_bytes=seen.append)

    assert found == NonfiniteWeights(4, ("b", "a"))
    assert (sum(seen), max(seen)) == (2 * 4 * 55, 16)


def test_a_scan_stops_when_the_job_has_to(tmp_path: Path) -> None:
    save(tmp_path, {"a": torch.ones(4)})

    with pytest.raises(Stopped):
        find_nonfinite(tmp_path, should_stop=lambda: True, on_bytes=lambda _count: None)
