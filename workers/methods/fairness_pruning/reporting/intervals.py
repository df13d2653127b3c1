"""Intervals of numbers that are no row of the summary: parts of a change, and a ratio of means."""

from typing import Any

import numpy as np
from scipy import stats

from workers.evaluation.bootstrap import (
    CONFIDENCE,
    MIN_UNITS_FOR_CLAIM,
    N_RESAMPLES,
    generator_for,
    mean_interval,
)
from workers.methods.fairness_pruning.measuring.diagnosis import Array
from workers.methods.fairness_pruning.measuring.metrics import PARITY
from workers.methods.fairness_pruning.measuring.outcomes import EditOutcome
from workers.methods.fairness_pruning.measuring.pair_plan import Split
from workers.methods.fairness_pruning.reporting.evidence import Evidence
from workers.methods.fairness_pruning.run_controls import SELECTION

Ends = tuple[float, float]


def behavioural_intervals(evidence: Evidence, split: Split) -> dict[str, Ends | None]:
    """Give the 95 % interval of the mean behavioural reduction, of the selection and each control.

    None with fewer than two pairs. The generator has the name "behavioural/SPLIT/NAME".
    """
    columns = evidence.plan.columns(split)
    outcomes: dict[str, EditOutcome] = dict(evidence.controls)
    if evidence.outcome is not None:
        outcomes = {SELECTION: evidence.outcome, **outcomes}
    found: dict[str, Ends | None] = {}
    for name, outcome in outcomes.items():
        rng = generator_for(evidence.ctx.seed, f"behavioural/{split}/{name}")
        interval = mean_interval(outcome.behavioural[columns], rng=rng)
        found[name] = None if interval is None else interval.ends
    return found


def ratio_intervals(evidence: Evidence) -> dict[str, Ends | None]:
    """Give the 95 % intervals of the demographic to neutral ratio, before and after.

    Selection pairs and control pairs are different pairs, so each kind is resampled by itself.
    None below `MIN_UNITS_FOR_CLAIM` pairs of either kind, and where a stage was not measured. The
    generator has the name "demographic_to_control_ratio/STAGE".
    """
    columns, control = evidence.plan.columns("selection"), evidence.plan.columns("control")
    stages: dict[str, Array | None] = {
        "before": evidence.metrics_before.get(PARITY),
        "after": None if evidence.outcome is None else evidence.outcome.after[PARITY],
    }
    few = min(len(columns), len(control)) < MIN_UNITS_FOR_CLAIM
    return {
        stage: None
        if few or values is None
        else _ratio_interval(
            values[columns],
            values[control],
            rng=generator_for(evidence.ctx.seed, f"demographic_to_control_ratio/{stage}"),
        )
        for stage, values in stages.items()
    }


def _ratio_interval(top: Array, bottom: Array, *, rng: np.random.Generator) -> Ends | None:
    """Give the percentile interval of mean(top) / mean(bottom); None where `bottom` holds zeros."""
    if not (bottom > 0).all():
        return None

    def ratio(first: Array, second: Array, axis: int) -> Any:
        return first.mean(axis) / second.mean(axis)

    found = stats.bootstrap(
        (top, bottom),
        ratio,
        vectorized=True,
        n_resamples=N_RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=rng,
    ).confidence_interval
    return float(found.low), float(found.high)
