"""What an edit costs the language: the loss on the prompts of the job itself."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from workers.evaluation.bootstrap import (
    MIN_UNITS_FOR_CLAIM,
    generator_for,
    paired_difference_interval,
)
from workers.methods.fairness_pruning.measuring.diagnosis import Array
from workers.methods.fairness_pruning.reporting.evidence import Evidence
from workers.methods.fairness_pruning.selecting.controls import LOSS_CONTROLS

LANGUAGE_LOSS = "language loss"
"""Name from which `generator_for` draws the resamples of the interval of the loss."""


def losses_by_stage(evidence: Evidence) -> dict[str, Array]:
    """Give the loss of every pair, (pairs,): before, after, and of the controls that have one.

    Only stages that were measured are there.
    """
    stages = {"before": evidence.base, "after": evidence.edited}
    losses = {
        stage: diagnosis.loss
        for stage, diagnosis in stages.items()
        if diagnosis is not None and diagnosis.loss is not None
    }
    return losses | {
        name: evidence.edit.arrays[f"loss/{name}"]
        for name in LOSS_CONTROLS
        if f"loss/{name}" in evidence.edit.arrays
    }


def language_entry(evidence: Evidence) -> dict[str, Any] | None:
    """Say what the edit costs: loss per token on the distinct prompts' pairs, beside controls.

    The prompts are few and short. This shows damage, not ability.
    """
    losses = losses_by_stage(evidence)
    if "after" not in losses:
        return None
    interval = paired_difference_interval(
        losses["before"], losses["after"], rng=generator_for(evidence.ctx.seed, LANGUAGE_LOSS)
    )
    return {
        "n": len(losses["before"]),
        "unit": "nats per token of the prompts, mean over pairs",
        "loss": {name: float(values.mean()) for name, values in losses.items()},
        "perplexity": {name: float(np.exp(values.mean())) for name, values in losses.items()},
        "ci95_loss_increase": interval and list(interval.ends),
    }


def costs_language(language: Mapping[str, Any]) -> bool:
    """Whether the loss grew reliably: its interval lies above zero, over enough pairs."""
    interval = language["ci95_loss_increase"]
    return bool(interval and interval[0] > 0 and language["n"] >= MIN_UNITS_FOR_CLAIM)
