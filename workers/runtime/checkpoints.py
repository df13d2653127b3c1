"""Checkpoints and finished phases as files: JSON for the state, safetensors for the arrays."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

from workers.runtime.context import Arrays
from workers.runtime.faults import numerical_failure

STATE_NAME = "state.json"
ARRAYS_NAME = "arrays.safetensors"


@dataclass(frozen=True, slots=True)
class PointFiles:
    """Where a point lies; `arrays` is None when it has none."""

    state: Path
    arrays: Path | None


def write_point(folder: Path, arrays: Arrays, state: Mapping[str, Any]) -> PointFiles:
    """Write a point so that it is either there in full or not at all.

    Raises
    ------
    JobFailure
        `numerical_failure` when the state holds NaN or an infinity.
    """
    try:
        text = json.dumps(state, allow_nan=False, sort_keys=True)
    except ValueError as exc:
        raise numerical_failure("A result of this phase is not finite.") from exc
    partial = folder.with_name(f"{folder.name}.partial")
    partial.mkdir(parents=True)
    (partial / STATE_NAME).write_text(text, encoding="utf-8")
    if arrays:
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        save_file(contiguous, partial / ARRAYS_NAME)
    for path in partial.iterdir():
        _fsync(path)
    partial.rename(folder)
    return find_point(folder)


def find_point(folder: Path) -> PointFiles:
    """Name the files of a point that was written before."""
    arrays = folder / ARRAYS_NAME
    return PointFiles(folder / STATE_NAME, arrays if arrays.exists() else None)


def read_point(files: PointFiles) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Read arrays and state of a point."""
    state: dict[str, Any] = json.loads(files.state.read_text(encoding="utf-8"))
    return (load_file(files.arrays) if files.arrays else {}), state


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
