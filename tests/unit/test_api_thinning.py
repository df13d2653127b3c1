"""Thinning of curves."""

from hypothesis import given
from hypothesis import strategies as st

from app.domain.thinning import thin

Points = list[tuple[int, float | None]]
curves = st.lists(st.none() | st.floats(allow_nan=False), max_size=200).map(
    lambda values: list(enumerate(values))
)


@given(points=curves, max_points=st.integers(2, 50))
def test_thinned_curve_is_short_ordered_and_keeps_its_ends(points: Points, max_points: int) -> None:
    kept = thin(points, max_points, value=lambda point: point[1])

    assert len(kept) <= max(max_points, 0)
    assert kept == sorted(kept, key=lambda point: point[0])
    assert set(kept) <= set(points)
    if points:
        assert (kept[0], kept[-1]) == (points[0], points[-1])


@given(points=curves, max_points=st.integers(4, 50))
def test_extremes_survive(points: Points, max_points: int) -> None:
    values = [value for _, value in points if value is not None]

    kept = [value for _, value in thin(points, max_points, value=lambda point: point[1])]

    if values:
        assert min(values) in kept
        assert max(values) in kept


def test_short_curve_stays_whole() -> None:
    points: Points = [(0, 1.0), (1, None), (2, 3.0)]

    assert thin(points, 3, value=lambda point: point[1]) == points
