"""What report.json holds of each pair so that anyone can repeat the statistics of a report."""

from typing import Any

from workers.evaluation.bootstrap import CONFIDENCE, MIN_UNITS_FOR_CLAIM, N_RESAMPLES
from workers.methods.fairness_pruning.heads.choose import STATE
from workers.methods.fairness_pruning.measuring.metrics import PARITY
from workers.methods.fairness_pruning.reporting.evidence import BENCHMARK, Evidence
from workers.methods.fairness_pruning.reporting.language import LANGUAGE_LOSS, losses_by_stage
from workers.methods.fairness_pruning.selecting.controls import (
    AGAINST_IMPORTANCE,
    AGAINST_RANDOM,
    MIN_HOLDOUT_PAIRS,
)


def statistics_entry() -> dict[str, Any]:
    """Say how every interval follows from the values of the pairs, to the last resample.

    A generator is numpy's default one for [seed of the job, CRC-32 of a name]; `generators` has
    the name of each statistic. The resamples are those of `scipy.stats.bootstrap`.
    """
    return {
        "interval": "percentile bootstrap of the mean over pairs, scipy.stats.bootstrap",
        "confidence": CONFIDENCE,
        "resamples": N_RESAMPLES,
        "min_pairs_for_a_verdict": MIN_UNITS_FOR_CLAIM,
        "min_held_out_pairs_for_a_claim": MIN_HOLDOUT_PAIRS,
        "generator": "numpy.random.default_rng([seed, zlib.crc32(name)])",
        "generators": {
            "summary": f"{BENCHMARK}/METRIC/GROUP",
            "interval_against_random_mean": AGAINST_RANDOM,
            "interval_against_importance_only": AGAINST_IMPORTANCE,
            "ci95_loss_increase": LANGUAGE_LOSS,
            "ci95_behavioural": "behavioural/SPLIT/NAME",
            "ci95_demographic_to_control_ratio": "demographic_to_control_ratio/STAGE",
        },
    }


def control_values(evidence: Evidence, column: int) -> dict[str, dict[str, float]]:
    """Give the parity metric of one pair under every control, split as that of the selection."""
    before = evidence.metrics_before[PARITY]
    return {
        name: {
            "after": float(made.after[PARITY][column]),
            "before_on_kept": float(made.before_on_kept[column]),
            "after_on_kept": float(made.after_on_kept[column]),
            "mechanical": float(made.mechanical(before)[column]),
            "behavioural": float(made.behavioural[column]),
        }
        for name, made in evidence.controls.items()
    }


def loss_values(evidence: Evidence, column: int) -> dict[str, float]:
    """Give the loss on the prompts of one pair, in nats per token; empty where not measured."""
    return {stage: float(values[column]) for stage, values in losses_by_stage(evidence).items()}


def removed_by_controls(evidence: Evidence) -> dict[str, Any]:
    """List what each control takes out, and how much of it the selection takes out as well.

    `removed_heads` is None in a job without attention heads.
    """
    state = evidence.edit.state
    neurons, heads = state["controls"], state.get(STATE, {})
    of_heads = heads.get("controls")
    return {
        "removed": neurons,
        "removed_heads": of_heads,
        "shared_with_selection": {
            name: {
                "neurons": _shared(removed, state["removed"]),
                "heads": 0 if of_heads is None else _shared(of_heads[name], heads["removed"]),
            }
            for name, removed in neurons.items()
        },
    }


def _shared(first: dict[str, list[int]], second: dict[str, list[int]]) -> int:
    """Count what two removals, by layer, have in common."""
    return sum(len(set(indices) & set(second.get(layer, ()))) for layer, indices in first.items())
