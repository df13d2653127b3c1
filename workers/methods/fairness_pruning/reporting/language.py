"""What an edit costs the language: the loss on the prompts of the job itself."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from workers.evaluation.bootstrap import (
    MIN_UNITS_FOR_CLAIM,
    generator_for,
    paired_difference_interval,
)
from workers.methods.fairness_pruning.reporting.evidence import Evidence
from workers.methods.fairness_pruning.selecting.controls import LOSS_CONTROLS


def language_entry(evidence: Evidence) -> dict[str, Any] | None:
    """Say what the edit costs: loss per token on the distinct prompts' pairs, beside controls.

    The prompts are few and short. This shows damage, not ability.
    """
    base, edited = evidence.base, evidence.edited
    if base is None or edited is None or base.loss is None or edited.loss is None:
        return None
    losses = {"before": base.loss, "after": edited.loss} | {
        name: evidence.edit.arrays[f"loss/{name}"]
        for name in LOSS_CONTROLS
        if f"loss/{name}" in evidence.edit.arrays
    }
    interval = paired_difference_interval(
        base.loss, edited.loss, rng=generator_for(evidence.ctx.seed, "language loss")
    )
    return {
        "n": len(base.loss),
        "unit": "nats per token of the prompts, mean over pairs",
        "loss": {name: float(values.mean()) for name, values in losses.items()},
        "perplexity": {name: float(np.exp(values.mean())) for name, values in losses.items()},
        "ci95_loss_increase": interval and list(interval.ends),
    }


def costs_language(language: Mapping[str, Any]) -> bool:
    """Whether the loss grew reliably: its interval lies above zero, over enough pairs."""
    interval = language["ci95_loss_increase"]
    return bool(interval and interval[0] > 0 and language["n"] >= MIN_UNITS_FOR_CLAIM)
