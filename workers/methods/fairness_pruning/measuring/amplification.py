"""Where in the depth of a model the difference between two prompts grows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from workers.methods.fairness_pruning.measuring.capture import CapturePoint
from workers.methods.fairness_pruning.measuring.diagnosis import Array, Diagnosis
from workers.reports.component_names import component_label
from workers.reports.picture import true_minus
from workers.reports.wording import counted

CURVE_POINTS = (
    CapturePoint.ATTENTION_OUTPUT,
    CapturePoint.MLP_OUTPUT,
    CapturePoint.INPUT_NORM,
)
_EXECUTION_ORDER = (CapturePoint.ATTENTION_OUTPUT, CapturePoint.MLP_OUTPUT)
# The band holds the middle 80 % of pairs: it shows the spread between pairs, not the precision
# of their mean.
_BAND_PERCENTILES = (10, 90)
_MIN_LAYERS_FOR_RANK = 4
# Share of the size of the activations: a smaller trend is rounding of the float32 differences.
_LEVEL = 1e-6


@dataclass(frozen=True, slots=True)
class GrowthCurve:
    """Relative difference over affected slots by layer: mean over pairs, and a band."""

    component: str
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def growth_curves(diagnosis: Diagnosis, columns: Sequence[int]) -> tuple[GrowthCurve, ...]:
    """Curves of the pairs in `columns`; none without pairs."""
    if not columns:
        return ()
    return tuple(
        _curve(point, diagnosis.relative(point, affected=True)[:, columns])
        for point in CURVE_POINTS
        if point in diagnosis.points
    )


def amplification(
    diagnosis: Diagnosis,
    columns: Sequence[int],
    control_columns: Sequence[int],
    *,
    threshold: float,
) -> dict[str, Any] | None:
    """Describe onset, slope and largest jump, in numbers and in a sentence; None without pairs.

    `demographic` is True when, at the onset, the curve lies above the band of the control pairs,
    False when it does not, and None without control pairs or without an onset.
    """
    if not columns:
        return None
    description = _describe(diagnosis, columns, threshold)
    control = _describe(diagnosis, control_columns, threshold) if control_columns else None
    found = {
        "threshold": threshold,
        **description,
        "control": control,
        "demographic": _is_demographic(diagnosis, columns, control_columns, description["onset"]),
    }
    return {**found, "sentence": amplification_sentence(found)}


def amplification_sentence(found: Mapping[str, Any]) -> str:
    """Put what `amplification` found into plain words."""
    onset, control = found["onset"], found["control"]
    threshold = f"{100 * found['threshold']:g} %"
    if onset is None:
        first = (
            f"The two prompts of a pair never differ by more than {threshold} of the size of the "
            "activations."
        )
    else:
        first = (
            f"The two prompts of a pair first differ by more than {threshold} of the size of the "
            f"activations in {_place(onset)}."
        )
    sentences = [first, *_growth_sentences(found)]
    if control is not None:
        same = "never" if control["onset"] is None else f"in {_place(control['onset'])}"
        sentences.append(f"Pairs that swap a neutral word get there {same}.")
    if found["demographic"] is not None:
        sentences.append(_beside_neutral_words(found))
    return " ".join(sentences)


def _place(onset: Mapping[str, Any]) -> str:
    return f"layer {onset['layer']} ({component_label(onset['component'])})"


def _beside_neutral_words(found: Mapping[str, Any]) -> str:
    """Compare a mean with single pairs: that has no interval, so it can be no more than a hint."""
    neutral = counted(len(found["control"]["onset_by_pair"]), "neutral pair")
    pairs = counted(len(found["onset_by_pair"]), "demographic pair")
    if found["demographic"]:
        return (
            f"There the mean of the {pairs} lies above nine in ten of the {neutral}: "
            "a hint, and no test, that it matters which word is swapped."
        )
    return (
        f"There the mean of the {pairs} does not lie above the spread of the {neutral}: "
        "nothing hints that it matters which word is swapped."
    )


def _growth_sentences(found: Mapping[str, Any]) -> list[str]:
    """Say in which direction the difference goes over depth, and where it leaps."""
    slope, rank = found["slope"], found["rank_correlation"]
    if slope is None:
        return []
    points = f"{abs(100 * slope):.3g} percentage points from the first layer to the last"
    signed = "" if rank is None else true_minus(f"{rank:+.2f}")
    correlation = f" (rank correlation with depth {signed})" if signed else ""
    jump = found["largest_jump"]
    if slope > _LEVEL:
        step = "" if jump is None else f"; it grows most at layer {jump}"
        return [f"In the MLP outputs it rises by {points}{correlation}{step}."]
    # A difference that shrinks on the whole may still leap up somewhere.
    step = "" if jump is None else f"; the largest step up is at layer {jump}"
    change = f"it falls by {points}" if slope < -_LEVEL else "it stays level"
    return [
        f"In the MLP outputs the difference does not grow with depth: {change}{correlation}{step}."
    ]


def _curve(point: CapturePoint, values: Array) -> GrowthCurve:
    low, high = np.percentile(values, _BAND_PERCENTILES, axis=1)
    return GrowthCurve(
        component=point.value,
        mean=tuple(values.mean(axis=1).tolist()),
        low=tuple(low.tolist()),
        high=tuple(high.tolist()),
    )


def _describe(diagnosis: Diagnosis, columns: Sequence[int], threshold: float) -> dict[str, Any]:
    order = [point for point in _EXECUTION_ORDER if point in diagnosis.points]
    relative = np.stack(
        [diagnosis.relative(point, affected=True)[:, columns] for point in order], axis=1
    )  # (layers, points, pairs)
    mlp = diagnosis.relative(CapturePoint.MLP_OUTPUT, affected=True)[:, columns].mean(axis=1)
    return {
        "onset": _onset(relative.mean(axis=2), order, threshold),
        "onset_by_pair": [
            _onset(relative[:, :, pair], order, threshold) for pair in range(len(columns))
        ],
        **_slope(mlp),
        "largest_jump": _largest_jump(mlp),
    }


def _largest_jump(curve: npt.NDArray[np.float64]) -> int | None:
    """Layer whose value grew most over that of the layer before; None where none grew."""
    steps = np.diff(curve)
    return int(np.argmax(steps)) + 1 if len(steps) and steps.max() > 0 else None


def _onset(
    relative: Array, order: Sequence[CapturePoint], threshold: float
) -> dict[str, Any] | None:
    above = np.argwhere(relative > threshold)
    if not len(above):
        return None
    layer, position = above[0]
    return {"layer": int(layer), "component": order[position].value}


def _slope(curve: npt.NDArray[np.float64]) -> dict[str, float | None]:
    layers = len(curve)
    if layers < 2:
        return {"slope": None, "rank_correlation": None}
    depth = np.arange(layers) / (layers - 1)
    slope = float(np.polyfit(depth, curve, 1)[0])
    if layers < _MIN_LAYERS_FOR_RANK or np.ptp(curve) == 0:
        return {"slope": slope, "rank_correlation": None}
    return {"slope": slope, "rank_correlation": float(stats.spearmanr(depth, curve).statistic)}


def _is_demographic(
    diagnosis: Diagnosis,
    columns: Sequence[int],
    control_columns: Sequence[int],
    onset: dict[str, Any] | None,
) -> bool | None:
    if onset is None or not control_columns:
        return None
    point, layer = CapturePoint(onset["component"]), onset["layer"]
    relative = diagnosis.relative(point, affected=True)[layer]
    upper = np.percentile(relative[control_columns], _BAND_PERCENTILES[1])
    return bool(relative[columns].mean() > upper)
