"""Controls: the same number of neurons removed at random, or by importance alone.

A smaller metric after an edit shows little by itself. These edits say what the removal of as many
neurons chosen in another way would have done; they are evaluated in memory and never stored. A
control may share neurons with the selection: a random draw is one of all neurons of the layer, so
that it stands for removal as such. Where much of a layer goes, it shares much.

The first wording asks more than section 2.7 of the method's specification. There, the selection
has to beat every random draw and `importance_only`, and its lead over the *mean* of the random
draws has to exclude zero. Of seven removals that do all the same, one is the largest by luck with
probability 1/7, and a lead over the single `importance_only` by a hair then decides the wording.
So the paired interval of the lead over `importance_only` has to exclude zero as well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from workers.evaluation.bootstrap import generator_for, paired_difference_interval
from workers.methods.fairness_pruning.measuring.diagnosis import Array
from workers.methods.fairness_pruning.measuring.outcomes import Removed

BEYOND_CHANCE = "the selection reduces the metric beyond chance"
NO_MORE_THAN_IMPORTANCE = "no more than removing the least important neurons"
LIKE_IMPORTANCE = "not distinguishable from removing the least important neurons"
LIKE_RANDOM = "not distinguishable from random removal"
SELECTION_ONLY = "measured on the selection pairs only"
NO_CONTROLS = "no controls run"
NOTHING_REMOVED = "nothing was changed"

MIN_HOLDOUT_PAIRS = 5
IMPORTANCE_ONLY = "importance_only"
AGAINST_RANDOM = "selection_against_random"
AGAINST_IMPORTANCE = "selection_against_importance"
"""Names from which `generator_for` draws the resamples of the two intervals of a verdict."""


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
    behavioural reduction of the parity metric; `interval` is that of the lead of the selection
    over the mean of the random draws, `interval_against_importance` that of its lead over the
    removal by importance.
    """

    wording: str
    claim: bool
    n_holdout: int
    selection: float | None = None
    random: tuple[float, ...] = ()
    importance_only: float | None = None
    interval: tuple[float, float] | None = None
    interval_against_importance: tuple[float, float] | None = None

    @property
    def rank(self) -> str:
        """The place of the selection among all removals in words; empty where none was ranked."""
        if self.selection is None or self.importance_only is None:
            return ""
        others = (*self.random, self.importance_only)
        place = 1 + sum(value >= self.selection for value in others)
        ordinal = "the largest" if place == 1 else f"number {place}"
        return (
            f"{ordinal} of {1 + len(others)} removals "
            f"(this selection, {len(self.random)} random, 1 by importance)"
        )


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
    over_random, over_importance = (
        paired_difference_interval(control, selection, rng=generator_for(seed, name))
        for control, name in (
            (np.mean(random, axis=0), AGAINST_RANDOM),
            (importance_only, AGAINST_IMPORTANCE),
        )
    )
    value, least = float(selection.mean()), float(importance_only.mean())
    draws = tuple(float(draw.mean()) for draw in random)
    wording = _wording(
        value,
        draws,
        least,
        beats_random=over_random is not None and over_random.low > 0,
        beats_importance=over_importance is not None and over_importance.low > 0,
    )
    return Verdict(
        wording=wording,
        claim=wording == BEYOND_CHANCE,
        n_holdout=n_holdout,
        selection=value,
        random=draws,
        importance_only=least,
        interval=None if over_random is None else over_random.ends,
        interval_against_importance=None if over_importance is None else over_importance.ends,
    )


def _wording(
    value: float,
    draws: Sequence[float],
    least: float,
    *,
    beats_random: bool,
    beats_importance: bool,
) -> str:
    # A selection that grew the metric less than all controls has not reduced it.
    if value > max(0.0, least, *draws) and beats_random:
        return BEYOND_CHANCE if beats_importance else LIKE_IMPORTANCE
    return NO_MORE_THAN_IMPORTANCE if least >= value else LIKE_RANDOM
