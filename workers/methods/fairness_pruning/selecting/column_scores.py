"""Scores of the columns of a matrix that is seen a few rows at a time.

For weights whose neurons lie along the second axis (every down projection, and GPT-2's first one):
the matrix is never held, and each column scores what the same numbers would score as a row.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt

_Float64 = npt.NDArray[np.float64]


class _Columns(Protocol):
    """Running statistics of each column."""

    def add(self, rows: _Float64) -> None:
        """Take in a block of rows, shape (rows, columns)."""

    def score(self) -> _Float64:
        """Give the score of each column, shape (columns,)."""


class _Extremes:
    """A function of the highest and the lowest value."""

    def __init__(self, combine: Callable[[_Float64, _Float64], _Float64]) -> None:
        self._combine = combine
        self._highest: _Float64 = np.array(-np.inf)
        self._lowest: _Float64 = np.array(np.inf)

    def add(self, rows: _Float64) -> None:
        self._highest = np.maximum(self._highest, rows.max(axis=0))
        self._lowest = np.minimum(self._lowest, rows.min(axis=0))

    def score(self) -> _Float64:
        return self._combine(self._highest, self._lowest)


class _Sum:
    """The sum of a function of each value, and a function of that sum."""

    def __init__(
        self,
        each: Callable[[_Float64], _Float64],
        finish: Callable[[_Float64], _Float64] = lambda total: total,
    ) -> None:
        self._each = each
        self._finish = finish
        self._total: _Float64 = np.zeros(())

    def add(self, rows: _Float64) -> None:
        self._total = self._total + self._each(rows).sum(axis=0)

    def score(self) -> _Float64:
        return self._finish(self._total)


class _Variance:
    """The variance with one degree of freedom less than values.

    Blocks are joined as by Chan, Golub and LeVeque (1979), "Updating formulae and a pairwise
    algorithm for computing sample variances": nothing cancels, unlike in the difference of the
    mean square and the squared mean.
    """

    def __init__(self) -> None:
        self._count = 0
        self._mean: _Float64 = np.zeros(())
        self._deviations: _Float64 = np.zeros(())  # sum of squared deviations from the mean

    def add(self, rows: _Float64) -> None:
        before, new = self._count, len(rows)
        self._count = before + new
        shift = rows.mean(axis=0) - self._mean
        self._mean = self._mean + shift * (new / self._count)
        between = np.square(shift) * (before * new / self._count)
        self._deviations = self._deviations + rows.var(axis=0) * new + between

    def score(self) -> _Float64:
        return self._deviations / (self._count - 1)


_KINDS: Mapping[str, Callable[[], _Columns]] = {
    "max_abs": lambda: _Extremes(lambda high, low: np.maximum(np.abs(high), np.abs(low))),
    "ppm": lambda: _Extremes(lambda high, low: high + np.abs(low)),
    "vow": _Variance,
    "pon": lambda: _Sum(np.abs),
    "l2": lambda: _Sum(np.square, np.sqrt),
}


def column_scores(blocks: Iterable[_Float64], kind: str) -> _Float64:
    """Score every column of a matrix.

    Parameters
    ----------
    blocks
        The matrix as blocks of rows, each of shape (rows, columns).
    kind
        `max_abs`, `ppm`, `vow`, `pon` or `l2`, as in `importance_scores`.

    Returns
    -------
    numpy.ndarray
        Scores, float64, shape (columns,).
    """
    columns = _KINDS[kind]()
    for rows in blocks:
        columns.add(rows)
    return columns.score()
