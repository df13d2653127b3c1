"""Scores of columns seen in blocks equal those of the whole matrix."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from workers.methods.fairness_pruning.selecting.column_scores import column_scores

Matrix = npt.NDArray[np.float64]

WHOLE: dict[str, Callable[[Matrix], Matrix]] = {
    "max_abs": lambda matrix: np.abs(matrix).max(axis=0),
    "ppm": lambda matrix: matrix.max(axis=0) + np.abs(matrix.min(axis=0)),
    "vow": lambda matrix: matrix.var(axis=0, ddof=1),
    "pon": lambda matrix: np.linalg.norm(matrix, ord=1, axis=0),
    "l2": lambda matrix: np.linalg.norm(matrix, axis=0),
}


def matrix_of(offset: float = 0.0) -> Matrix:
    generator = np.random.default_rng(7)
    matrix: Matrix = offset + generator.normal(size=(23, 5))
    return matrix


@pytest.mark.parametrize("cuts", [[], [1], [22], [4, 9, 10]], ids=str)
@pytest.mark.parametrize("kind", WHOLE)
def test_blocks_give_the_score_of_the_whole(kind: str, cuts: list[int]) -> None:
    matrix = matrix_of()

    scores = column_scores(np.split(matrix, cuts), kind)

    # Sums of 23 numbers in another order.
    np.testing.assert_allclose(scores, WHOLE[kind](matrix), rtol=1e-14)


def test_range_is_the_highest_plus_the_absolute_lowest() -> None:
    matrix = np.array([[-3.0], [-1.0], [-2.0]])

    # Highest plus absolute lowest, as the formula says: -1 + 3, which only happens to be the width.
    assert column_scores([matrix[:2], matrix[2:]], "ppm").tolist() == [2.0]
    # Above zero it is not: 3 + 1, where the width is 2.
    assert column_scores([-matrix[:2], -matrix[2:]], "ppm").tolist() == [4.0]


def test_variance_does_not_cancel_far_from_zero() -> None:
    matrix = matrix_of(offset=1e8)

    scores = column_scores(np.split(matrix, [7, 15]), "vow")

    # Means near 1e8 are known to 1e-8. The difference of mean square and squared mean, near 1e16,
    # would have no digit left.
    np.testing.assert_allclose(scores, WHOLE["vow"](matrix), rtol=1e-6)
