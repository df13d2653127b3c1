"""Intervals and p-values over resampling units: what a before/after claim rests on.

The statistics are the mean over units and the mean paired difference (after - before). A unit
is whatever may be called independent: a prompt pair, a passage, a question template. Resampling
anything smaller (tokens, near-copies of one template) pretends to more evidence than there is.

Few units make these intervals too narrow. The percentile interval approximates the spread of
the population by the spread of the sample with divisor n instead of n - 1, and uses normal-like
tails where Student's are heavier: at n = 100 a nominal 95 % interval of a mean covers about
94.5 %, at n = 10 about 90 %, at n = 5 about 80 %. BCa corrects skew and bias, not this. Reports
therefore print n beside every interval, and `summary_row` makes no claim below
`MIN_UNITS_FOR_CLAIM` units.

A change counts as reliable where the paired interval excludes zero, there are enough units and,
with an ideal inside the range of the units, the interval of the change of |mean - ideal| excludes
zero too: a mean that jumps over its ideal has changed for certain, but may be no nearer to it.

Resampling is that of `scipy.stats.bootstrap` and `scipy.stats.permutation_test`.

References
----------
Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapters 13 (percentile) and
14 (BCa). Phipson and Smyth, Permutation P-values Should Never Be Zero (2010).
"""

import warnings
import zlib
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import stats

from workers.runtime.context import SummaryRow

Values = npt.ArrayLike
IntervalMethod = Literal["percentile", "bca"]

# Usual for published benchmark tables; the Monte Carlo error of a 95 % end is then about 3 % of
# the half-width.
N_RESAMPLES = 2000
CONFIDENCE = 0.95
# All 2**n sign flips are enumerated up to n = 13; beyond that, as many are drawn.
N_SIGN_FLIPS = 9999
# With n units and no true change, all differences share a sign with probability 2**(1 - n), and
# then a percentile interval excludes zero: 12.5 % at n = 4, 6.3 % at n = 5.
MIN_UNITS_FOR_CLAIM = 5
# Upper bound on resampled values held at once (32 MB of float64).
_MAX_BATCH_VALUES = 4_000_000


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % interval, and how it came about.

    `method` is `percentile`, `bca`, or `constant` where all units have one value and the
    interval is that value: no spread was seen, which is not the same as certainty.
    """

    low: float
    high: float
    method: Literal["percentile", "bca", "constant"]

    @property
    def ends(self) -> tuple[float, float]:
        """The interval as (low, high)."""
        return self.low, self.high

    @property
    def excludes_zero(self) -> bool:
        """Whether zero lies outside the interval; an end at zero counts as inside."""
        return self.low > 0 or self.high < 0


def generator_for(seed: int, name: str) -> np.random.Generator:
    """Return the generator of the statistic `name`, so that adding one changes no other."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def mean_interval(
    values: Values,
    *,
    rng: np.random.Generator,
    method: IntervalMethod = "percentile",
    n_resamples: int = N_RESAMPLES,
) -> Interval | None:
    """Return the 95 % bootstrap interval of the mean over units, None with fewer than two.

    Parameters
    ----------
    values
        One finite number a unit, shape (n,); ValueError otherwise.
    rng
        Source of the resamples; the same generator state gives the same interval.
    method
        `percentile`, or `bca`, which falls back to `percentile` where its correction is
        undefined.
    n_resamples
        Number of resamples.
    """
    sample = _checked(values)
    if len(sample) < 2:
        return None
    if np.ptp(sample) == 0:
        return Interval(float(sample[0]), float(sample[0]), "constant")
    if method == "bca":
        # The fallback must not depend on how many numbers the failed attempt has drawn.
        fallback_rng = np.random.default_rng(rng.integers(2**63))
        ends = _resampled_ends(sample, rng, "BCa", n_resamples)
        if ends is not None:
            return Interval(*ends, "bca")
        rng = fallback_rng
    ends = _resampled_ends(sample, rng, "percentile", n_resamples)
    return None if ends is None else Interval(*ends, "percentile")


def paired_difference_interval(
    before: Values,
    after: Values,
    *,
    rng: np.random.Generator,
    method: IntervalMethod = "percentile",
    n_resamples: int = N_RESAMPLES,
) -> Interval | None:
    """Return the 95 % bootstrap interval of mean(after - before), the same draw for both.

    Parameters
    ----------
    before, after
        One finite number a unit each, shape (n,), in the same order of units.
    rng, method, n_resamples
        As in `mean_interval`.

    Returns
    -------
    Interval or None
        None with fewer than two units.

    Raises
    ------
    ValueError
        If the shapes differ or a number is not finite.
    """
    first, second = _checked_pair(before, after)
    return mean_interval(second - first, rng=rng, method=method, n_resamples=n_resamples)


def sign_flip_p_value(
    before: Values,
    after: Values,
    *,
    rng: np.random.Generator,
    n_sign_flips: int = N_SIGN_FLIPS,
) -> float | None:
    """Return the two-sided p-value of "no change", None with fewer than two units.

    Under no change, before and after may be swapped within any unit, which flips the sign of its
    difference. All swaps are enumerated where they are at most `n_sign_flips`, else that many
    are drawn; the observed one counts, so p is never zero and never below 2**(1 - n).

    Parameters
    ----------
    before, after
        One finite number a unit each, shape (n,), in the same order of units.
    rng
        Source of the drawn swaps.
    n_sign_flips
        Most swaps to look at.
    """
    first, second = _checked_pair(before, after)
    if len(first) < 2:
        return None
    result = stats.permutation_test(
        (first, second),
        _mean_difference,
        permutation_type="samples",
        vectorized=True,
        n_resamples=n_sign_flips,
        batch=_batch(2 * len(first)),
        alternative="two-sided",
        rng=rng,
    )
    return float(result.pvalue)


def summary_row(
    *,
    benchmark: str,
    metric: str,
    before: Values,
    after: Values,
    unit: str,
    seed: int,
    ideal: float | None = None,
    lower_is_better: bool | None = None,
    group: str | None = None,
    method: IntervalMethod = "percentile",
) -> SummaryRow:
    """Build one line of the before/after table from one number a unit and model, shape (n,).

    Without `ideal`, `lower_is_better` gives the direction; without both, `improved` is None.
    """
    first, second = _checked_pair(before, after)
    name = f"{benchmark}/{metric}/{group or ''}"
    rng = generator_for(seed, name)
    intervals = [
        mean_interval(values, rng=generator_for(seed, name), method=method)
        for values in (first, second, second - first)
    ]
    return SummaryRow(
        benchmark=benchmark,
        metric=metric,
        group=group,
        before=_mean(first),
        after=_mean(second),
        delta=_mean(second - first),
        ideal=ideal,
        improved=_Goal(ideal, lower_is_better).judge(first, second, intervals[2], rng),
        ci95_before=_ends(intervals[0]),
        ci95_after=_ends(intervals[1]),
        ci95_delta=_ends(intervals[2]),
        n=len(first),
        unit=unit,
        p_value=sign_flip_p_value(first, second, rng=generator_for(seed, f"{name}/p")),
    )


@dataclass(frozen=True, slots=True)
class _Goal:
    """Where a metric should go."""

    ideal: float | None
    lower_is_better: bool | None

    def judge(
        self,
        before: npt.NDArray[np.float64],
        after: npt.NDArray[np.float64],
        difference: Interval | None,
        rng: np.random.Generator,
    ) -> bool | None:
        """Judge a change: True nearer, False further, None not reliable or without direction."""
        if difference is None or not difference.excludes_zero or len(before) < MIN_UNITS_FOR_CLAIM:
            return None
        if self.ideal is None:
            return self._falls_for_good(difference)
        if min(before.min(), after.min()) >= self.ideal:
            return difference.high < 0
        if max(before.max(), after.max()) <= self.ideal:
            return difference.low > 0
        change = _distance_change_interval(before, after, self.ideal, rng)
        return change.high < 0 if change.excludes_zero else None

    def _falls_for_good(self, difference: Interval) -> bool | None:
        if self.lower_is_better is None:
            return None
        return (difference.high < 0) == self.lower_is_better


def _distance_change_interval(
    before: npt.NDArray[np.float64],
    after: npt.NDArray[np.float64],
    ideal: float,
    rng: np.random.Generator,
) -> Interval:
    """Return the percentile interval of |mean(after) - ideal| - |mean(before) - ideal|."""

    def distance_change(
        first: npt.NDArray[np.float64], second: npt.NDArray[np.float64], axis: int
    ) -> Any:
        return np.abs(second.mean(axis) - ideal) - np.abs(first.mean(axis) - ideal)

    point = float(distance_change(before, after, -1))
    if np.ptp(before) == 0 and np.ptp(after) == 0:
        return Interval(point, point, "constant")
    result = stats.bootstrap(
        (before, after),
        distance_change,
        paired=True,
        vectorized=True,
        n_resamples=N_RESAMPLES,
        batch=_batch(2 * len(before)),
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=rng,
    ).confidence_interval
    return Interval(float(result.low), float(result.high), "percentile")


def _resampled_ends(
    sample: npt.NDArray[np.float64],
    rng: np.random.Generator,
    method: Literal["percentile", "BCa"],
    n_resamples: int,
) -> tuple[float, float] | None:
    """Return the ends as scipy gives them, or None where they are not finite."""
    # Degenerate data shows as NaN ends, which are handled below.
    with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore"):
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        result = stats.bootstrap(
            (sample,),
            np.mean,
            vectorized=True,
            n_resamples=n_resamples,
            batch=_batch(len(sample)),
            confidence_level=CONFIDENCE,
            method=method,
            rng=rng,
        ).confidence_interval
    ends = float(result.low), float(result.high)
    return ends if np.isfinite(ends).all() else None


def _mean_difference(
    first: npt.NDArray[np.float64], second: npt.NDArray[np.float64], axis: int
) -> Any:
    """Return mean(second - first) along `axis`."""
    return (second - first).mean(axis)


def _batch(values_per_resample: int) -> int:
    """Return how many resamples to hold at once."""
    return max(1, _MAX_BATCH_VALUES // max(1, values_per_resample))


def _checked(values: Values) -> npt.NDArray[np.float64]:
    """Return `values` as a finite float64 vector."""
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1:
        raise ValueError(f"expected one number a unit, shape (n,), got shape {sample.shape}")
    if not np.isfinite(sample).all():
        raise ValueError("a unit has a value that is not finite; leave it out and say so")
    return sample


def _checked_pair(
    before: Values, after: Values
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return both samples as finite float64 vectors of one length."""
    first, second = _checked(before), _checked(after)
    if first.shape != second.shape:
        raise ValueError(f"before has {len(first)} units and after has {len(second)}")
    return first, second


def _mean(values: npt.NDArray[np.float64]) -> float | None:
    """Return the mean, or None of nothing."""
    return float(values.mean()) if len(values) else None


def _ends(interval: Interval | None) -> tuple[float, float] | None:
    """Return the ends of an interval that may be missing."""
    return None if interval is None else interval.ends
