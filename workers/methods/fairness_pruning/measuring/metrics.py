"""The numbers of a diagnosis that a report shows: one value per pair and metric."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from workers.methods.fairness_pruning.measuring.capture import CapturePoint
from workers.methods.fairness_pruning.measuring.diagnosis import Array, Diagnosis

PARITY_POINTS = (
    CapturePoint.ATTENTION_OUTPUT,
    CapturePoint.MLP_OUTPUT,
    CapturePoint.GATE_PROJ,
    CapturePoint.UP_PROJ,
    CapturePoint.DOWN_PROJ,
    CapturePoint.INPUT_NORM,
)
"""Components of the parity metric. For a GLU, down_proj and mlp_output are the same tensor and
count twice, as in the public implementation whose numbers it reproduces."""

RESIDUAL_POINTS = (CapturePoint.MLP_OUTPUT, CapturePoint.ATTENTION_OUTPUT)
"""Components of the relative metric: what a layer adds to the residual stream."""

PARITY = "bias_metric_parity"
MLP = "bias_metric_mlp"
ATTENTION = "bias_metric_attention"
RELATIVE = "bias_metric_relative"
METRICS = (PARITY, MLP, ATTENTION, RELATIVE)


def pair_metrics(diagnosis: Diagnosis, *, affected: bool = False) -> dict[str, Array]:
    """All metrics per pair, (pairs,); with `affected`, over slots from the first difference on."""
    statistic = "affected_mean" if affected else "mean"
    relative = [
        diagnosis.relative(point, affected=affected)
        for point in RESIDUAL_POINTS
        if point in diagnosis.points
    ]
    return {
        PARITY: _parity(diagnosis, statistic, kept=None),
        MLP: _layer_mean(diagnosis, statistic, CapturePoint.MLP_OUTPUT),
        ATTENTION: _layer_mean(diagnosis, statistic, CapturePoint.ATTENTION_OUTPUT),
        RELATIVE: np.asarray(np.mean(relative, axis=(0, 1))),
    }


def parity_on_kept(diagnosis: Diagnosis, kept_set: int, *, affected: bool = False) -> Array:
    """Compute the parity metric with gate and up means over one kept set, (pairs,)."""
    kept = diagnosis.affected_kept_mean if affected else diagnosis.kept_mean
    return _parity(diagnosis, "affected_mean" if affected else "mean", kept=kept[kept_set])


def parity_from_parts(
    diagnosis: Diagnosis, kept: Array, kept_points: Sequence[CapturePoint]
) -> Array:
    """Compute the parity metric with other gate and up means, (kept points, layers, pairs)."""
    return _combine(diagnosis, "mean", dict(zip(kept_points, kept, strict=True)))


def component_means(diagnosis: Diagnosis) -> dict[str, Array]:
    """Mean difference of each component over its layers, (pairs,)."""
    return {
        point.value: np.asarray(diagnosis.of("mean", point).mean(axis=0))
        for point in diagnosis.points
    }


def layer_curves(
    diagnosis: Diagnosis,
    columns: Sequence[int],
    *,
    slots: npt.NDArray[np.int64],
    widths: Mapping[CapturePoint, int],
) -> dict[str, dict[str, list[float]]]:
    """Describe each component by layer over some pairs.

    Mean, relative, Euclidean norm and population deviation of the differences are means over
    pairs, `max` is the largest over pairs. `affected_` counts slots from the first difference on.

    Parameters
    ----------
    columns
        Pairs to describe; at least one.
    slots
        Number of aligned slots of every pair.
    widths
        Width of the activations at each point.
    """
    curves = {}
    for point in diagnosis.points:
        mean = diagnosis.of("mean", point)
        squares = diagnosis.of("square_sum", point)
        variance = np.maximum(squares / (slots * widths[point]) - mean**2, 0)
        by_pair = {
            "mean": mean,
            "relative": diagnosis.relative(point),
            "affected_mean": diagnosis.of("affected_mean", point),
            "affected_relative": diagnosis.relative(point, affected=True),
            "l2": np.sqrt(squares),
            "std": np.sqrt(variance),
        }
        curves[point.value] = {
            name: values[:, columns].mean(axis=1).tolist() for name, values in by_pair.items()
        }
        curves[point.value]["max"] = diagnosis.of("max", point)[:, columns].max(axis=1).tolist()
    return curves


def percent_reduction(before: float, after: float) -> float | None:
    """Reduction in percent of `before`, negative when it grew; None where `before` is 0."""
    return None if before == 0 else 100.0 * (before - after) / before


def _layer_mean(diagnosis: Diagnosis, statistic: str, point: CapturePoint) -> Array:
    return np.asarray(diagnosis.of(statistic, point).mean(axis=0))


def _parity(diagnosis: Diagnosis, statistic: str, *, kept: Array | None) -> Array:
    replaced = {} if kept is None else dict(zip(diagnosis.kept_points, kept, strict=True))
    return _combine(diagnosis, statistic, replaced)


def _combine(diagnosis: Diagnosis, statistic: str, replaced: Mapping[CapturePoint, Array]) -> Array:
    present = [point for point in PARITY_POINTS if point in diagnosis.points]
    keys = [
        replaced[point] if point in replaced else diagnosis.of(statistic, point)
        for point in present
    ]
    return np.asarray(np.mean(keys, axis=(0, 1)))
