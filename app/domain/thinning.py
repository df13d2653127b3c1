"""Thin out a curve so that its shape stays."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

PointT = TypeVar("PointT")


def thin(
    points: Sequence[PointT], max_points: int, *, value: Callable[[PointT], float | None]
) -> list[PointT]:
    """Keep at most `max_points` points: of each stretch its minimum and its maximum.

    The first and last point and all extremes of the whole curve survive. Points without a value
    stay only where a stretch has no other. `max_points` is at least 2.
    """
    if len(points) <= max_points:
        return list(points)
    if max_points < 4:
        return [points[0], points[-1]]
    inner = points[1:-1]
    stretches = (max_points - 2) // 2
    bounds = [len(inner) * k // stretches for k in range(stretches + 1)]
    kept = [points[0]]
    for start, end in pairwise(bounds):
        kept += _extremes(inner[start:end], value)
    return [*kept, points[-1]]


def _extremes(stretch: Sequence[PointT], value: Callable[[PointT], float | None]) -> list[PointT]:
    valued = [
        (number, k) for k, point in enumerate(stretch) if (number := value(point)) is not None
    ]
    if not valued:
        return list(stretch[:1])
    return [stretch[k] for k in sorted({min(valued)[1], max(valued)[1]})]
