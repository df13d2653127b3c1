"""Which components of the layers were recorded, and what readers call them.

Families differ: one without a gate, a norm before attention or separable experts has fewer.
"""

from typing import Any

from workers.methods.fairness_pruning.measuring.metrics import PARITY_POINTS
from workers.methods.fairness_pruning.reporting.evidence import Evidence
from workers.reports.component_names import component_label
from workers.reports.wording import listed


def component_entry(evidence: Evidence) -> dict[str, Any]:
    """Say which components were read, and over which of them the parity metric is the mean."""
    points = () if evidence.base is None else evidence.base.points
    return {
        "recorded": [point.value for point in points],
        "in_parity": [point.value for point in PARITY_POINTS if point in points],
        "missing_from_parity": [point.value for point in PARITY_POINTS if point not in points],
        "has_neurons": evidence.shape.layout.is_editable,
    }


def component_list(names: list[str]) -> str:
    """List components in words; "none" for none."""
    return listed([component_label(name) for name in names]) or "none"


def parity_components(evidence: Evidence) -> str:
    """List the components over which the parity metric is the mean."""
    return component_list(component_entry(evidence)["in_parity"])
