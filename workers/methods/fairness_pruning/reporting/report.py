"""report.json: every number of a job, in strict JSON."""

from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from platform import python_version
from typing import Any

import numpy as np

from workers.methods.fairness_pruning.heads.report import heads_entry
from workers.methods.fairness_pruning.measure_base import pairs_to_continue
from workers.methods.fairness_pruning.measuring.amplification import amplification
from workers.methods.fairness_pruning.measuring.capture import NEURON_POINTS, CapturePoint
from workers.methods.fairness_pruning.measuring.generation import Continuation, first_difference
from workers.methods.fairness_pruning.measuring.metrics import (
    METRICS,
    PARITY,
    component_means,
    layer_curves,
    pair_metrics,
    percent_reduction,
)
from workers.methods.fairness_pruning.measuring.pair_plan import SPLITS, PlannedPair
from workers.methods.fairness_pruning.measuring.phase_data import unpack_texts
from workers.methods.fairness_pruning.measuring.reactions import reactions_entry
from workers.methods.fairness_pruning.reporting.components import component_entry
from workers.methods.fairness_pruning.reporting.evidence import Evidence, group_outcomes
from workers.methods.fairness_pruning.reporting.intervals import (
    behavioural_intervals,
    ratio_intervals,
)
from workers.methods.fairness_pruning.reporting.language import language_entry
from workers.methods.fairness_pruning.reporting.pair_values import (
    control_values,
    loss_values,
    removed_by_controls,
    statistics_entry,
)
from workers.methods.fairness_pruning.reporting.warnings import warnings_of
from workers.methods.fairness_pruning.selecting.controls import worded
from workers.runtime.context import SummaryRow, finite_or_none

FORMAT = "evenhand.fairness_pruning.report/1"

VERSIONED = ("evenhand", "torch", "transformers", "tokenizers", "safetensors", "numpy", "scipy")

LIMITS = (
    "The numbers compare two versions of one model on one set of pairs. They are no benchmark, "
    "and they cannot be compared between models.",
    "A smaller internal difference is not fairness of what the model writes: measure the edited "
    "model with an independent bias benchmark as well.",
    "Language ability (such as LAMBADA or BoolQ) was not measured by this job; the loss on the "
    "prompts shows damage only.",
    "Biases that the pairs do not vary were not measured.",
)


def build_report(evidence: Evidence) -> dict[str, Any]:
    """Build the report as plain JSON types; non-finite numbers become null."""
    report: dict[str, Any] = {
        "format": FORMAT,
        **origin_entry(evidence),
        "components": component_entry(evidence),
        "verdict": verdict_entry(evidence),
        "statistics": statistics_entry(),
        "summary": [summary_entry(row) for row in evidence.rows],
        "pairs": [pair_entry(evidence, pair) for pair in evidence.plan.pairs],
        **_change(evidence),
        "controls": controls_entry(evidence),
        "language": language_entry(evidence),
        "amplification": amplification_entry(evidence),
        "layers": layers_entry(evidence),
        "reactions": reactions_entry(evidence),
        "generations": generation_entries(evidence),
        "warnings": warnings_of(evidence),
        "limits": list(LIMITS),
    }
    finite: dict[str, Any] = finite_json(report)
    return finite


def origin_entry(evidence: Evidence) -> dict[str, Any]:
    """Say what was run on which model: all that is needed to run it again."""
    ctx = evidence.ctx
    provenance = ctx.provenance
    return {
        "method": {"name": provenance["method"], "version": provenance["method_version"]},
        "job": {
            "id": provenance["job_id"],
            "name": provenance["job_name"],
            "spec_hash": provenance["spec_hash"],
            "seed": ctx.seed,
        },
        "model": provenance["model"],
        "model_files": list(provenance["model_files"]),
        "config": evidence.config.model_dump(mode="json"),
        "run": {
            "device": ctx.device,
            "dtype_before": evidence.before.state["dtype"],
            "dtype_after": evidence.after.state["dtype"],
        },
        "versions": software_versions(),
    }


def _change(evidence: Evidence) -> dict[str, Any]:
    """Say what was removed, and what is left."""
    state = evidence.edit.state
    return {
        "nothing_changed": evidence.nothing_changed,
        "tensors_changed": [] if evidence.nothing_changed else list(state["tensors_changed"]),
        "removed": state["removed"],
        "parameters": {
            "before": state["parameters_before"],
            "after": state["parameters_after"],
        },
        "intermediate_size": {
            "before": state["intermediate_size_before"],
            "after": state["intermediate_size_after"],
        },
        "padding_neurons": state["padding_neurons"],
        **heads_entry(evidence.edit),
        "lost_multiples": list(evidence.width.lost),
        "roundings": [asdict(option) for option in evidence.width.options],
        "fraction": {
            "requested": state["requested_fraction"],
            "effective": state["effective_fraction"],
        },
        "checkpoint_files": state["files"],
    }


def software_versions() -> dict[str, str]:
    """Versions of everything that can change a number."""
    return {"python": python_version(), **{name: version(name) for name in VERSIONED}}


def verdict_entry(evidence: Evidence) -> dict[str, Any]:
    """Describe what the controls allow to say, and the numbers that decide it."""
    verdict = evidence.verdict
    return {
        "wording": worded(verdict.wording, evidence.edited_parts),
        "claim": verdict.claim,
        "held_out_pairs": verdict.n_holdout,
        "behavioural_reduction": {
            "selection": verdict.selection,
            "random": list(verdict.random),
            "importance_only": verdict.importance_only,
        },
        "rank": verdict.rank or None,
        "interval_against_random_mean": verdict.interval and list(verdict.interval),
        "interval_against_importance_only": verdict.interval_against_importance
        and list(verdict.interval_against_importance),
    }


def summary_entry(row: SummaryRow) -> dict[str, Any]:
    """Write one line of the before/after table as JSON."""
    before, after = row.before, row.after
    reduction = None if before is None or after is None else percent_reduction(before, after)
    return {
        "benchmark": row.benchmark,
        "metric": row.metric,
        "group": row.group,
        "before": before,
        "after": after,
        "delta": row.delta,
        "reduction_percent": reduction,
        "ideal": row.ideal,
        "improved": row.improved,
        "ci95_before": row.ci95_before and list(row.ci95_before),
        "ci95_after": row.ci95_after and list(row.ci95_after),
        "ci95_delta": row.ci95_delta and list(row.ci95_delta),
        "n": row.n,
        "unit": row.unit,
        "p_value": row.p_value,
    }


def pair_entry(evidence: Evidence, pair: PlannedPair) -> dict[str, Any]:
    """Describe one pair: its tokens, and every metric before and after."""
    entry: dict[str, Any] = {
        "prompt_1": pair.prompt_1,
        "prompt_2": pair.prompt_2,
        "category": pair.category,
        "split": pair.split,
        "n_tokens": [len(pair.ids_1), len(pair.ids_2)],
        "position_shift": pair.alignment.position_shift,
        "first_affected_slot": pair.alignment.first_affected,
        "skipped": pair.column is None,
    }
    if pair.column is None or evidence.base is None or evidence.edited is None:
        return entry
    return {**entry, **_measured_entry(evidence, pair.column)}


def _measured_entry(evidence: Evidence, column: int) -> dict[str, Any]:
    base, edited, outcome = evidence.base, evidence.edited, evidence.outcome
    if base is None or edited is None or outcome is None:
        raise ValueError("no pair was measured")
    entry: dict[str, Any] = {}
    for metric in METRICS:
        before = float(evidence.metrics_before[metric][column])
        after = float(outcome.after[metric][column])
        entry[metric] = {
            "before": before,
            "after": after,
            "reduction_percent": percent_reduction(before, after),
        }
    parity = evidence.metrics_before[PARITY]
    entry[PARITY] |= {
        "before_on_kept": float(outcome.before_on_kept[column]),
        "after_on_kept": float(outcome.after_on_kept[column]),
        "mechanical": float(outcome.mechanical(parity)[column]),
        "behavioural": float(outcome.behavioural[column]),
    }
    affected = pair_metrics(base, affected=True), pair_metrics(edited, affected=True)
    entry["affected_slots"] = {
        metric: {"before": float(affected[0][metric][column]), "after": float(after[column])}
        for metric, after in affected[1].items()
    }
    after_means = component_means(edited)
    entry["components"] = {
        component: {"before": float(values[column]), "after": float(after_means[component][column])}
        for component, values in component_means(base).items()
    }
    entry["controls"] = control_values(evidence, column)
    entry["loss"] = loss_values(evidence, column)
    return entry


def controls_entry(evidence: Evidence) -> dict[str, Any]:
    """Describe every control on every split, beside the selection and the base model."""
    groups = {}
    for split in SPLITS:
        columns = evidence.plan.columns(split)
        if columns:
            groups[split] = {
                "n": len(columns),
                "before": evidence.stage_means(evidence.metrics_before, split),
                "after": group_outcomes(evidence, columns),
                "ci95_behavioural": behavioural_intervals(evidence, split),
            }
    return {
        "enabled": evidence.config.controls.enabled,
        **removed_by_controls(evidence),
        "groups": groups,
        "demographic_to_control_ratio": control_ratio(evidence),
        "ci95_demographic_to_control_ratio": ratio_intervals(evidence),
    }


def control_ratio(evidence: Evidence) -> dict[str, float | None]:
    """Parity on demographic pairs over parity on control pairs, before and after.

    None without pairs of both kinds, and where the control pairs do not differ at all.
    """
    columns, control = evidence.plan.columns("selection"), evidence.plan.columns("control")
    if evidence.outcome is None or not columns or not control:
        return {"before": None, "after": None}
    stages = {"before": evidence.metrics_before[PARITY], "after": evidence.outcome.after[PARITY]}
    return {
        stage: float(values[columns].mean() / neutral)
        if (neutral := values[control].mean())
        else None
        for stage, values in stages.items()
    }


def amplification_entry(evidence: Evidence) -> dict[str, Any]:
    """Say where the difference grows, before and after."""
    columns = demographic_columns(evidence)
    control = evidence.plan.columns("control")
    threshold = evidence.config.amplification.threshold
    stages = {"before": evidence.base, "after": evidence.edited}
    return {
        stage: None
        if diagnosis is None
        else amplification(diagnosis, columns, control, threshold=threshold)
        for stage, diagnosis in stages.items()
    }


def demographic_columns(evidence: Evidence) -> list[int]:
    """Columns of all pairs that swap a demographic word."""
    return sorted([*evidence.plan.columns("selection"), *evidence.plan.columns("holdout")])


def layers_entry(evidence: Evidence) -> dict[str, Any]:
    """Curves over depth per component, for each split, before and after."""
    if evidence.base is None or evidence.edited is None:
        return {}
    slots = np.array([len(pair.alignment.slots) for pair in evidence.plan.measured])
    hidden = evidence.shape.dimensions.hidden
    sizes = evidence.edit.state
    stages = {
        "before": (evidence.base, sizes["intermediate_size_before"]),
        "after": (evidence.edited, sizes["intermediate_size_after"]),
    }
    return {
        split: {
            stage: layer_curves(
                diagnosis,
                columns,
                slots=slots,
                widths={p: neurons if p in NEURON_POINTS else hidden for p in CapturePoint},
            )
            for stage, (diagnosis, neurons) in stages.items()
        }
        for split in SPLITS
        if (columns := evidence.plan.columns(split))
    }


def neuron_map_entry(evidence: Evidence) -> dict[str, Any] | None:
    """Compare the neurons of the categories; None where the config does not ask for it."""
    found = evidence.neuron_map
    return found and {"format": "evenhand.fairness_pruning.neuron_map/1", **found}


def generation_entries(evidence: Evidence) -> list[dict[str, Any]]:
    """Continuations of both prompts of some pairs, before and after."""
    before = unpack_texts(evidence.before.state["texts"])
    after = unpack_texts(evidence.after.state["texts"])
    return [
        {
            "pair": pair.number,
            "category": pair.category,
            "split": pair.split,
            "prompt": prompt,
            "before": _text_entry(before[ids]),
            "after": _text_entry(after[ids]),
            "first_difference": first_difference(before[ids].ids, after[ids].ids),
        }
        for pair in pairs_to_continue(evidence.plan, evidence.config)
        for prompt, ids in ((pair.prompt_1, pair.ids_1), (pair.prompt_2, pair.ids_2))
        if ids in before and ids in after
    ]


def _text_entry(made: Continuation) -> dict[str, Any]:
    return {"text": made.text, "continuation": made.continuation, "ids": list(made.ids)}


def finite_json(value: Any) -> Any:
    """Plain JSON types at any depth, non-finite numbers as null."""
    if isinstance(value, Mapping):
        return {str(key): finite_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite_json(item) for item in value]
    if isinstance(value, float | np.floating):
        return finite_or_none(float(value))
    return value
