"""Differences by pair and layer: the numbers behind every mean of the report."""

from typing import Any

from workers.methods.fairness_pruning.measuring.capture import CapturePoint
from workers.methods.fairness_pruning.measuring.diagnosis import Diagnosis
from workers.methods.fairness_pruning.reporting.evidence import Evidence

STATISTICS = ("mean", "affected_mean", "max")


def layer_table(evidence: Evidence) -> dict[str, Any] | None:
    """Give every pair's differences at every point and layer, None without measured pairs.

    The values of a statistic are nested as [layer][pair]; `pairs` names the columns. A
    statistic is taken over the slots and neurons of one layer; `affected_` counts slots from the
    first difference on, and `relative` divides by the mean magnitude of the activations.
    """
    if evidence.base is None:
        return None
    stages = {"before": evidence.base, "after": evidence.edited}
    return {
        "pairs": [
            {"prompt_1": pair.prompt_1, "prompt_2": pair.prompt_2, "split": pair.split}
            for pair in evidence.plan.measured
        ],
        "components": {
            point.value: {
                stage: _statistics(diagnosis, point)
                for stage, diagnosis in stages.items()
                if diagnosis is not None
            }
            for point in evidence.base.points
        },
    }


def _statistics(diagnosis: Diagnosis, point: CapturePoint) -> dict[str, list[list[float]]]:
    values = {name: diagnosis.of(name, point).tolist() for name in STATISTICS}
    return {**values, "relative": diagnosis.relative(point).tolist()}
