"""Turn diagnoses and texts into what a phase stores, and back."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from workers.methods.fairness_pruning.measuring.capture import CapturePoint
from workers.methods.fairness_pruning.measuring.diagnosis import KEPT_POINTS, STATISTICS, Diagnosis
from workers.methods.fairness_pruning.measuring.generation import Continuation

Arrays = dict[str, npt.NDArray[Any]]
Texts = dict[tuple[int, ...], Continuation]


def pack_diagnosis(diagnosis: Diagnosis) -> Arrays:
    """Name every array of a diagnosis; `unpack_diagnosis` is the inverse."""
    arrays: Arrays = {f"statistic/{name}": values for name, values in diagnosis.statistics.items()}
    arrays["kept_mean"] = diagnosis.kept_mean
    arrays["affected_kept_mean"] = diagnosis.affected_kept_mean
    for (pair, point, layer), (rows_1, rows_2) in diagnosis.pictures.items():
        arrays[f"picture/{pair}/{point}/{layer}/1"] = rows_1
        arrays[f"picture/{pair}/{point}/{layer}/2"] = rows_2
    if diagnosis.loss is not None:
        arrays["loss"] = diagnosis.loss
    return arrays


def unpack_diagnosis(
    arrays: Mapping[str, npt.NDArray[Any]], points: tuple[CapturePoint, ...]
) -> Diagnosis:
    """Restore a diagnosis that was read at `points`."""
    pictures = {}
    for name in arrays:
        if name.startswith("picture/") and name.endswith("/1"):
            _, pair, point, layer, _ = name.split("/")
            other = f"{name[:-1]}2"
            pictures[int(pair), CapturePoint(point), int(layer)] = arrays[name], arrays[other]
    return Diagnosis(
        points=points,
        statistics={name: arrays[f"statistic/{name}"] for name in STATISTICS},
        kept_points=tuple(point for point in KEPT_POINTS if point in points),
        kept_mean=arrays["kept_mean"],
        affected_kept_mean=arrays["affected_kept_mean"],
        pictures=pictures,
        loss=arrays.get("loss"),
    )


def pack_texts(texts: Texts) -> list[dict[str, Any]]:
    """List generated texts as JSON, ordered by prompt; `unpack_texts` is the inverse."""
    return [
        {
            "prompt_ids": list(prompt),
            "text": made.text,
            "continuation": made.continuation,
            "ids": list(made.ids),
        }
        for prompt, made in sorted(texts.items())
    ]


def unpack_texts(entries: list[dict[str, Any]]) -> Texts:
    """Restore generated texts by their prompt's token ids."""
    return {
        tuple(entry["prompt_ids"]): Continuation(
            text=entry["text"], continuation=entry["continuation"], ids=tuple(entry["ids"])
        )
        for entry in entries
    }


def pack_removed(removed: Mapping[int, Sequence[int]]) -> dict[str, list[int]]:
    """Write removed neurons with JSON keys, every layer ascending."""
    return {str(layer): sorted(removed[layer]) for layer in sorted(removed)}


def unpack_removed(entries: Mapping[str, list[int]]) -> dict[int, list[int]]:
    """Restore removed neurons by layer number."""
    return {int(layer): list(indices) for layer, indices in entries.items()}


def stack_layers(values: Mapping[int, npt.NDArray[Any]]) -> npt.NDArray[np.float32]:
    """Stack one vector a layer to (layers, neurons); (0, 0) without any."""
    if not values:
        return np.zeros((0, 0), dtype=np.float32)
    return np.stack([values[layer] for layer in sorted(values)]).astype(np.float32)
