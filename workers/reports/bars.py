"""Before and after as pairs of bars: the picture for readers who never saw a forest plot."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from workers.reports.picture import (
    AFTER,
    BEFORE,
    INK,
    SMALL_SIZE,
    TEXT_SIZE,
    Picture,
    dress,
    head,
    make_picture,
    new_figure,
    printable,
    scale_for,
)
from workers.runtime.context import SummaryRow

_WIDTH = 0.38
_COLUMNS = 2


def before_after_bars(rows: Sequence[SummaryRow], *, titles: Mapping[str, str]) -> Picture:
    """Draw the means before and after with their 95 % intervals, one panel a metric.

    Parameters
    ----------
    rows
        Lines of the table, a few groups a metric; those without a value on either side are left
        out.
    titles
        Readable title of each metric by name.
    """
    shown = [row for row in rows if row.before is not None and row.after is not None]
    panels = []
    for metric in dict.fromkeys(row.metric for row in shown):
        groups = [_group(row) for row in shown if row.metric == metric]
        panels.append({"metric": metric, "title": titles.get(metric, metric), "groups": groups})
    data = {
        "title": "Each metric in bars, base model and edited model",
        "subtitle": "Means over pairs; lines: 95 % bootstrap intervals of each mean alone. Whether "
        "a change is reliable is judged on the pairs themselves, not on overlapping lines",
        "panels": panels,
    }
    return make_picture("before_after", data, draw_bars, alt=_alt(shown, titles))


def draw_bars(data: Mapping[str, Any]) -> Figure:
    """Draw the twin of `before_after_bars`."""
    panels = data["panels"]
    lines = max(1, -(-len(panels) // _COLUMNS))
    figure = new_figure(6.8, 1.1 + 1.9 * lines)
    if panels:
        grid = figure.subplots(lines, _COLUMNS, squeeze=False).ravel()
        for axes, panel in zip(grid, panels, strict=False):
            _panel(axes, panel)
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
    figure.legend(
        handles=[
            Patch(color=BEFORE, label="base model"),
            Patch(color=AFTER, label="edited model"),
            Line2D([], [], color=INK, lw=1.2, label="95 % interval"),
        ],
        loc="outside lower center",
        ncols=3,
        frameon=False,
        fontsize=SMALL_SIZE,
        labelcolor=INK,
    )
    head(figure, data["title"], data["subtitle"])
    return figure


def _panel(axes: Axes, panel: Mapping[str, Any]) -> None:
    """Draw one metric: two bars a group, each with its interval."""
    groups = panel["groups"]
    scale = scale_for([group[stage] for group in groups for stage in ("before", "after")])
    for stage, shift, color in (("before", -_WIDTH / 2, BEFORE), ("after", _WIDTH / 2, AFTER)):
        places = [place + shift for place in range(len(groups))]
        heights = scale.scaled([group[stage] for group in groups])
        axes.bar(places, heights, _WIDTH, color=color)
        for place, group in zip(places, groups, strict=True):
            ends = group[f"ci95_{stage}"]
            if ends is not None:
                axes.plot([place, place], scale.scaled(ends), color=INK, lw=1.2)
    names = [f"{textwrap.fill(printable(g['group'], limit=44), 13)}\nn = {g['n']}" for g in groups]
    axes.set_xticks(range(len(groups)), names)
    axes.set_xlim(-0.7, len(groups) - 0.3)
    axes.set_title(
        textwrap.fill(f"{panel['title']}{scale.times}", 40),
        fontsize=TEXT_SIZE,
        color=INK,
        loc="left",
        fontweight="bold",
        parse_math=False,
    )
    dress(axes)
    for label in axes.get_xticklabels():
        label.set_parse_math(False)
    axes.tick_params(axis="x", labelsize=SMALL_SIZE, labelcolor=INK)


def _group(row: SummaryRow) -> dict[str, Any]:
    """Return the twin of one group."""
    return {
        "group": row.group or "all groups",
        "n": row.n,
        "before": row.before,
        "after": row.after,
        "ci95_before": row.ci95_before and list(row.ci95_before),
        "ci95_after": row.ci95_after and list(row.ci95_after),
    }


def _alt(rows: Sequence[SummaryRow], titles: Mapping[str, str]) -> str:
    """Describe the bars in sentences."""
    sentences = [
        f"{titles.get(row.metric, row.metric)}, {row.group or 'all groups'}: {row.before:.3g} "
        f"before, {row.after:.3g} after."
        for row in rows
    ]
    return " ".join(["Bar chart of means before and after.", *sentences])
