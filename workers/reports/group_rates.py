"""Values of groups beside each other, in the manner of the four-fifths rule of thumb.

The rule compares rates at which groups are chosen: the rate of each group over the highest rate.
The same ratio reads any value of which more, or less, is better for a group. The line at 0.8 is
an aid to reading and no test: for few units a ratio below it may be chance, and one above it may
hide a difference that matters.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

FOUR_FIFTHS = 0.8
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupValue:
    """The value of one group before and after, over `n` units; None where undefined."""

    group: str
    n: int
    before: float | None
    after: float | None
    ci95_before: Interval | None = None
    ci95_after: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRates:
    """One value by group.

    Parameters
    ----------
    title, measure
        What the table shows, and what the values are.
    best
        Which value is the best to have: `highest` for rates at which something good happens,
        `lowest` for errors and differences.
    unit
        What `n` counts.
    is_selection_rate
        Whether the values are rates at which members of the groups are chosen. Only then is a
        ratio below the line marked: the rule of thumb speaks of nothing else.
    min_units
        Groups of fewer units have no ratio, and set none.
    """

    title: str
    measure: str
    best: Literal["highest", "lowest"]
    unit: str
    groups: tuple[GroupValue, ...]
    note: str = ""
    is_selection_rate: bool = False
    min_units: int = 1

    @property
    def lines(self) -> tuple["GroupLine", ...]:
        """Groups in the order given, with their ratios."""
        before, after = (
            group_ratios([self._judged(group, stage) for group in self.groups], best=self.best)
            for stage in ("before", "after")
        )
        return tuple(map(GroupLine, self.groups, before, after))

    def _judged(self, group: GroupValue, stage: str) -> float | None:
        value: float | None = getattr(group, stage)
        return value if group.n >= self.min_units else None


@dataclass(frozen=True, slots=True)
class GroupLine:
    """One group with its ratios to the best group, None where undefined."""

    value: GroupValue
    ratio_before: float | None
    ratio_after: float | None


def group_ratios(
    values: Sequence[float | None], *, best: Literal["highest", "lowest"]
) -> list[float | None]:
    """Return the ratio of each value to the best one, in [0, 1]; 1 is the best group.

    `highest`: value over the highest. `lowest`: the lowest over the value, so that here too a
    small ratio means worse off. All are None with fewer than two defined values, or where the
    highest is 0 and the ratio therefore undefined.

    Raises
    ------
    ValueError
        A value is negative, which makes a ratio meaningless.
    """
    defined = [value for value in values if value is not None]
    if any(value < 0 for value in defined):
        raise ValueError("ratios of groups need values of 0 or more")
    if len(defined) < 2 or max(defined) == 0:
        return [None] * len(values)
    low, high = min(defined), max(defined)

    def ratio(value: float) -> float:
        if best == "highest":
            return value / high
        return 1.0 if value == low else low / value

    return [None if value is None else ratio(value) for value in values]


def is_below_line(ratio: float | None) -> bool:
    """Whether a ratio lies below the reading line at four fifths."""
    return ratio is not None and ratio < FOUR_FIFTHS
