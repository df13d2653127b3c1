"""Controls: the same number of neurons removed at random, or by importance alone.

A smaller metric after an edit shows little by itself. These edits say what the removal of any
other neurons would have done; they are evaluated in memory and never stored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from workers.evaluation.bootstrap import generator_for, paired_difference_interval
from workers.methods.fairness_pruning.measuring.diagnosis import Array
from workers.methods.fairness_pruning.measuring.outcomes import Removed

BEYOND_CHANCE = "the selection reduces the metric beyond chance"
NO_MORE_THAN_IMPORTANCE = "no more than removing the least important neurons"
LIKE_RANDOM = "not distinguishable from random removal"
SELECTION_ONLY = "measured on the selection pairs only"
NO_CONTROLS = "no controls run"
NOTHING_REMOVED = "nothing was changed"

MIN_HOLDOUT_PAIRS = 5
IMPORTANCE_ONLY = "importance_only"


def worded(text: str, parts: str) -> str:
    """Say of `parts`, as in "attention heads", what a sentence of this method says of neurons."""
    return text.replace("neurons", parts)


def random_name(draw: int) -> str:
    """Name of a random draw in reports and checkpoints."""
    return f"random_{draw}"


LOSS_CONTROLS = (IMPORTANCE_ONLY, random_name(0))
"""Controls whose cost to the language is measured too: one of each kind."""


def random_removal(
    counts: Mapping[int, int], *, neurons: int, seed: int, draw: int
) -> dict[int, list[int]]:
    """Draw `counts` neurons of each layer uniformly, ascending.

    The generator depends on the job's seed and the draw alone, so one more draw changes no other.
    """
    rng = generator_for(seed, random_name(draw))
    return {
        layer: sorted(int(n) for n in rng.choice(neurons, size=count, replace=False))
        for layer, count in counts.items()
    }


def removal_counts_of(removed: Removed) -> dict[int, int]:
    """Count the neurons removed from each layer."""
    return {layer: len(indices) for layer, indices in removed.items()}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the controls allow to say about the selection.

    `claim` is True only for the first wording. The numbers are means over held-out pairs of the
    behavioural reduction of the parity metric; `interval` is that of the difference between the
    selection and the mean of the random draws.
    """

    wording: str
    claim: bool
    n_holdout: int
    selection: float | None = None
    random: tuple[float, ...] = ()
    importance_only: float | None = None
    interval: tuple[float, float] | None = None


def judge(
    selection: Array,
    random: Sequence[Array],
    importance_only: Array,
    *,
    seed: int,
) -> Verdict:
    """Choose the wording from behavioural reductions on held-out pairs.

    Parameters
    ----------
    selection, importance_only
        Reduction of each held-out pair, (pairs,).
    random
        The same for each random draw.
    seed
        Seed of the job; the bootstrap draws from it.
    """
    n_holdout = len(selection)
    if n_holdout < MIN_HOLDOUT_PAIRS:
        return Verdict(SELECTION_ONLY, claim=False, n_holdout=n_holdout)
    random_mean = np.mean(random, axis=0)
    interval = paired_difference_interval(
        random_mean, selection, rng=generator_for(seed, "selection_against_random")
    )
    value, least = float(selection.mean()), float(importance_only.mean())
    draws = tuple(float(draw.mean()) for draw in random)
    is_apart = interval is not None and interval.low > 0
    wording = _wording(value, draws, least, is_apart=is_apart)
    return Verdict(
        wording=wording,
        claim=wording == BEYOND_CHANCE,
        n_holdout=n_holdout,
        selection=value,
        random=draws,
        importance_only=least,
        interval=None if interval is None else interval.ends,
    )


def _wording(value: float, draws: Sequence[float], least: float, *, is_apart: bool) -> str:
    # A selection that grew the metric less than all controls has not reduced it.
    if value > max(0.0, least, *draws) and is_apart:
        return BEYOND_CHANCE
    return NO_MORE_THAN_IMPORTANCE if least >= value else LIKE_RANDOM
