"""report.json of a job that only diagnoses: every number, in strict JSON."""

from typing import Any

import numpy as np

from workers.methods.fairness_pruning.measure_base import pairs_to_continue
from workers.methods.fairness_pruning.measuring.capture import NEURON_POINTS, CapturePoint
from workers.methods.fairness_pruning.measuring.metrics import (
    METRICS,
    PARITY,
    component_means,
    layer_curves,
    pair_metrics,
)
from workers.methods.fairness_pruning.measuring.pair_plan import SPLITS, PlannedPair
from workers.methods.fairness_pruning.measuring.phase_data import unpack_texts
from workers.methods.fairness_pruning.measuring.reactions import reactions_entry
from workers.methods.fairness_pruning.reporting.components import component_entry
from workers.methods.fairness_pruning.reporting.evidence import Evidence
from workers.methods.fairness_pruning.reporting.intervals import ratio_intervals
from workers.methods.fairness_pruning.reporting.pair_values import loss_values, statistics_entry
from workers.methods.fairness_pruning.reporting.report import (
    amplification_entry,
    finite_json,
    neuron_map_entry,
    origin_entry,
    pair_entry,
    summary_entry,
)
from workers.methods.fairness_pruning.reporting.warnings import pair_warnings

FORMAT = "evenhand.fairness_pruning.diagnosis/1"

LIMITS = (
    "The numbers describe one model on one set of pairs. They are no benchmark, and they cannot "
    "be compared between models.",
    "An internal difference is not yet an unfair answer: measure what the model writes with an "
    "independent bias benchmark as well.",
    "A neuron that reacts to a word is not shown to cause anything: only an edit with its controls "
    "can tell.",
    "Biases that the pairs do not vary were not measured.",
)


def build_diagnosis_report(evidence: Evidence) -> dict[str, Any]:
    """Build the report as plain JSON types.

    Parts that an edit's report has as well are shaped as there, with nothing under `after`.
    """
    report: dict[str, Any] = {
        "format": FORMAT,
        **origin_entry(evidence),
        "components": component_entry(evidence),
        "statistics": statistics_entry(),
        "summary": [summary_entry(row) for row in evidence.rows],
        "pairs": [_pair(evidence, pair) for pair in evidence.plan.pairs],
        "demographic_to_control_ratio": {"before": base_control_ratio(evidence), "after": None},
        "ci95_demographic_to_control_ratio": ratio_intervals(evidence),
        "amplification": amplification_entry(evidence),
        "layers": _layers(evidence),
        "reactions": reactions_entry(evidence),
        "neuron_map": overlap_entry(evidence),
        "language": language_of_base(evidence),
        "generations": generations_of_base(evidence),
        "warnings": pair_warnings(evidence),
        "limits": list(LIMITS),
    }
    finite: dict[str, Any] = finite_json(report)
    return finite


def base_control_ratio(evidence: Evidence) -> float | None:
    """Parity on selection pairs over parity on control pairs; None without either."""
    columns, control = evidence.plan.columns("selection"), evidence.plan.columns("control")
    if not columns or not control:
        return None
    values = evidence.metrics_before[PARITY]
    neutral = float(values[control].mean())
    return float(values[columns].mean()) / neutral if neutral else None


def overlap_entry(evidence: Evidence) -> dict[str, Any] | None:
    """Give the overlap of the categories' top sets; their neurons are in neuron_map.json."""
    if not evidence.shape.layout.is_editable:
        return None
    found = neuron_map_entry(evidence)
    if found is None:
        return None
    return {name: found[name] for name in ("pair_counts", "overlap", "shared_by_all")}


def language_of_base(evidence: Evidence) -> dict[str, Any] | None:
    """Give loss and perplexity of the model on the prompts of the job."""
    if evidence.base is None or evidence.base.loss is None:
        return None
    loss = float(evidence.base.loss.mean())
    return {
        "n": len(evidence.base.loss),
        "unit": "nats per token of the prompts, mean over pairs",
        "loss": {"before": loss},
        "perplexity": {"before": float(np.exp(loss))},
    }


def _pair(evidence: Evidence, pair: PlannedPair) -> dict[str, Any]:
    """Describe one pair: its tokens, and every metric of the model."""
    entry = pair_entry(evidence, pair)
    base, column = evidence.base, pair.column
    if base is None or column is None:
        return entry
    affected = pair_metrics(base, affected=True)
    return {
        **entry,
        **{name: {"before": float(evidence.metrics_before[name][column])} for name in METRICS},
        "affected_slots": {name: {"before": float(affected[name][column])} for name in METRICS},
        "components": {
            name: {"before": float(values[column])}
            for name, values in component_means(base).items()
        },
        "loss": loss_values(evidence, column),
    }


def _layers(evidence: Evidence) -> dict[str, Any]:
    """Curves over depth per component, for each split."""
    if evidence.base is None:
        return {}
    dimensions = evidence.shape.dimensions
    slots = np.array([len(pair.alignment.slots) for pair in evidence.plan.measured])
    widths = {
        p: dimensions.neurons if p in NEURON_POINTS else dimensions.hidden for p in CapturePoint
    }
    return {
        split: {"before": layer_curves(evidence.base, columns, slots=slots, widths=widths)}
        for split in SPLITS
        if (columns := evidence.plan.columns(split))
    }


def generations_of_base(evidence: Evidence) -> list[dict[str, Any]]:
    """Continuations of both prompts of some pairs."""
    made = unpack_texts(evidence.before.state["texts"])
    return [
        {
            "pair": pair.number,
            "category": pair.category,
            "split": pair.split,
            "prompt": prompt,
            "before": {
                "text": made[ids].text,
                "continuation": made[ids].continuation,
                "ids": list(made[ids].ids),
            },
        }
        for pair in pairs_to_continue(evidence.plan, evidence.config)
        for prompt, ids in ((pair.prompt_1, pair.ids_1), (pair.prompt_2, pair.ids_2))
        if ids in made
    ]
