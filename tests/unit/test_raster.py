"""Bins of heat maps drop no position, and their colours have honest limits."""

import numpy as np
import pytest

from workers.reports.raster import MAX_BINS, SMALLEST_LIMIT, bin_width, binned, color_limit


def bins_by_a_loop(row: list[float]) -> list[float]:
    """The rule in words: ceil(width / 128) neighbours share a bin, the last may be narrower."""
    size = -(-len(row) // 128)
    parts = [row[start : start + size] for start in range(0, len(row), size)]
    return [sum(part) / len(part) for part in parts]


@pytest.mark.parametrize("width", [1, 64, 128, 129, 172, 255, 256, 300, 576, 1000])
def test_bins_equal_a_plain_loop(width: int) -> None:
    rows = np.random.default_rng(width).normal(size=(3, width))

    found = binned(rows)

    # The sum inside a bin may be taken in another order.
    assert found == pytest.approx(np.array([bins_by_a_loop(row.tolist()) for row in rows]))


@pytest.mark.parametrize("width", [64, 129, 172, 300, 8191])
def test_every_position_counts_once(width: int) -> None:
    sizes = np.diff([*range(0, width, bin_width(width)), width])
    values = np.random.default_rng(0).normal(size=width)

    total = float(binned(values) @ sizes)

    assert total == pytest.approx(values.sum(), abs=1e-9)
    assert len(sizes) <= MAX_BINS


def test_one_large_value_in_the_narrow_last_bin_is_not_thinned_out() -> None:
    values = np.zeros(257)
    values[-2:] = 6.0

    # Bins of three: 257 = 85 * 3 + 2, so the last one holds two and divides by two.
    assert binned(values)[-1] == 6.0


def test_limits_are_symmetric_at_the_99th_percentile_of_the_absolute_values() -> None:
    values = np.random.default_rng(0).normal(size=(5, 400))

    limit = color_limit([values[:2], values[2:]])

    beyond = np.mean(np.abs(values) > limit)
    assert beyond == pytest.approx(0.01, abs=0.001)
    assert limit == color_limit([-values])


def test_a_map_of_zeros_has_a_limit_above_zero() -> None:
    assert color_limit([np.zeros((2, 3))]) == SMALLEST_LIMIT == 1e-12
