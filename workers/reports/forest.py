"""The before/after table as a picture: one panel a metric, one line a group."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from workers.reports.picture import (
    BEFORE,
    BETTER,
    INK,
    MUTED,
    SMALL_SIZE,
    TEXT_SIZE,
    WORSE,
    Picture,
    dress,
    head,
    legend_below,
    make_picture,
    new_figure,
    printable,
    scale_for,
    signed_alike,
)
from workers.runtime.context import SummaryRow

UNRELIABLE = MUTED
_OFFSET = 0.17


def summary_forest(rows: Sequence[SummaryRow], *, titles: Mapping[str, str]) -> Picture:
    """Draw value and 95 % interval before and after, for each metric and group.

    Parameters
    ----------
    rows
        Lines of the table; those without a value on either side are left out.
    titles
        Readable title with unit of each metric by name.
    """
    shown = [row for row in rows if row.before is not None and row.after is not None]
    data = {
        "title": "Before and after, with 95 % intervals",
        "subtitle": "Bars: bootstrap interval over the resampling units named at the right; "
        "a dotted line marks the ideal where it is in view",
        "rows": [_twin(row, titles) for row in shown],
    }
    return make_picture("summary", data, draw_forest, alt=_alt(shown))


def draw_forest(data: Mapping[str, Any]) -> Figure:
    """Draw the twin of `summary_forest`."""
    rows = data["rows"]
    panels = list(dict.fromkeys((row["benchmark"], row["metric"]) for row in rows))
    grouped = [[r for r in rows if (r["benchmark"], r["metric"]) == panel] for panel in panels]
    heights = [len(group) + 1.1 for group in grouped]
    # Inches a line: two lines of text need 0.3.
    pitch = 0.5 if len(rows) <= 16 else 0.38
    figure = new_figure(8.4, 1.3 + pitch * sum(heights))
    if panels:
        axes = figure.subplots(len(panels), 1, height_ratios=heights, squeeze=False)[:, 0]
        for axis, group in zip(axes, grouped, strict=True):
            _panel(axis, group)
    legend_below(figure, _handles(), columns=4)
    head(figure, data["title"], data["subtitle"])
    return figure


def _panel(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw one metric: its groups from top to bottom."""
    for position, row in enumerate(rows):
        color, marker = _verdict_style(row["improved"])
        _mark(axes, position - _OFFSET, row["before"], row["ci95_before"], BEFORE, "o", "white")
        _mark(axes, position + _OFFSET, row["after"], row["ci95_after"], color, marker, color)
        axes.text(
            1.015,
            position,
            _change(row),
            transform=axes.get_yaxis_transform(),
            va="center",
            fontsize=SMALL_SIZE,
            color=INK,
            linespacing=1.3,
            parse_math=False,
        )
    _ideal_line(axes, rows[0]["ideal"])
    names = [textwrap.fill(printable(row["group"] or "all groups", limit=44), 24) for row in rows]
    axes.set_yticks(range(len(rows)), names)
    for label in axes.get_yticklabels():
        label.set_parse_math(False)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_title(
        rows[0]["title"],
        fontsize=TEXT_SIZE,
        color=INK,
        loc="left",
        fontweight="bold",
        parse_math=False,
    )
    dress(axes, grid_axis="x")
    # Ticks written as a difference to a number in the corner are misread.
    axes.ticklabel_format(axis="x", useOffset=False)
    axes.locator_params(axis="x", nbins=6)
    axes.xaxis.get_offset_text().set(fontsize=SMALL_SIZE, color=MUTED)
    axes.tick_params(axis="y", labelsize=TEXT_SIZE, labelcolor=INK)


def _mark(
    axes: Axes,
    height: float,
    value: float,
    interval: Sequence[float] | None,
    color: str,
    marker: str,
    face: str,
) -> None:
    """Draw one value with its interval, if it has one."""
    if interval is not None:
        axes.plot(interval, [height, height], color=color, lw=2.2, solid_capstyle="butt")
    axes.plot([value], [height], marker, mfc=face, mec=color, mew=1.6, ms=7)


def _ideal_line(axes: Axes, ideal: float | None) -> None:
    """Mark the ideal where it lies in or close to the drawn range, so that it cannot squeeze it."""
    if ideal is None:
        return
    low, high = axes.get_xlim()
    margin = 0.2 * (high - low)
    if low - margin <= ideal <= high + margin:
        axes.axvline(ideal, color=INK, lw=1, ls=":")


def _verdict_style(improved: bool | None) -> tuple[str, str]:
    """Return colour and marker of the value after: shape says the same as colour."""
    if improved is None:
        return UNRELIABLE, "o"
    return (BETTER, "o") if improved else (WORSE, "s")


def _change(row: Mapping[str, Any]) -> str:
    """Return the change with its interval and n as text."""
    scale = scale_for([row["before"], row["after"]])
    delta, *ends = signed_alike(scale.scaled([row["delta"], *(row["ci95_delta"] or ())]))
    interval = " to ".join(ends) if ends else "no interval"
    return f"{delta}  ({interval}){scale.times}\nn = {row['n']}, unit: {row['unit']}"


def _handles() -> list[Line2D]:
    """Return the legend of the forest."""
    nothing: list[float] = []
    styles = (
        (BEFORE, "o", "white", "before"),
        (BETTER, "o", BETTER, "after: better"),
        (WORSE, "s", WORSE, "after: worse"),
        (UNRELIABLE, "o", UNRELIABLE, "after: no reliable change, or not judged"),
    )
    return [
        Line2D(nothing, nothing, marker=marker, ls="", mfc=face, mec=color, ms=7, label=label)
        for color, marker, face, label in styles
    ]


def _twin(row: SummaryRow, titles: Mapping[str, str]) -> dict[str, Any]:
    """Return what is drawn of one line."""
    return {
        "benchmark": row.benchmark,
        "metric": row.metric,
        "title": titles.get(row.metric, row.metric),
        "group": row.group,
        "before": row.before,
        "after": row.after,
        "delta": row.delta,
        "ideal": row.ideal,
        "improved": row.improved,
        "ci95_before": _plain(row.ci95_before),
        "ci95_after": _plain(row.ci95_after),
        "ci95_delta": _plain(row.ci95_delta),
        "n": row.n,
        "unit": row.unit,
    }


def _plain(interval: tuple[float, float] | None) -> list[float] | None:
    """Return the interval as JSON has it."""
    return None if interval is None else list(interval)


def _alt(rows: Sequence[SummaryRow]) -> str:
    """Count the verdicts in a sentence."""
    better = sum(row.improved is True for row in rows)
    worse = sum(row.improved is False for row in rows)
    return (
        f"Forest plot of {len(rows)} results before and after: {better} better, {worse} worse, "
        f"{len(rows) - better - worse} without a reliable change. The table has the same numbers."
    )
