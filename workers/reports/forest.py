"""The before/after table as pictures: one a metric, one line a group, narrow enough for a phone."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from workers.reports.picture import (
    BEFORE,
    BETTER,
    GRID,
    INK,
    MUTED,
    SMALL_SIZE,
    TEXT_SIZE,
    WORSE,
    Picture,
    dress,
    head,
    head_height,
    make_picture,
    new_figure,
    printable,
    scale_for,
    signed_alike,
)
from workers.reports.raster import Sheet
from workers.runtime.context import SummaryRow

UNRELIABLE = MUTED

_Style = tuple[str, str, str]

# Inches. At this width the text can be read on a phone and in half a column of A4.
_WIDTH = 4.1
_MARGIN = 0.12
_ROW, _AXIS = 0.43, 0.3
_LEGEND_ROW, _LEGEND_MARGIN = 0.16, 0.1
_LEGEND_COLUMNS = 2
# Heights within a row of one: the text stands above its two marks.
_TEXT, _BEFORE, _AFTER = -0.26, 0.1, 0.33
_LONGEST_NAME = 26
# Colour, marker and face of each mark: shape says the same as colour.
_BEFORE_STYLE: _Style = (BEFORE, "o", "white")
_STYLES: Mapping[str, _Style] = MappingProxyType(
    {
        "after: better": (BETTER, "o", BETTER),
        "after: worse": (WORSE, "s", WORSE),
        "after: no reliable change": (UNRELIABLE, "o", UNRELIABLE),
        "not judged (neutral words)": (UNRELIABLE, "D", "white"),
    }
)


def forest_name(metric: str) -> str:
    """Name the forest plot of a metric."""
    return f"forest_{metric}"


def forest_plots(
    rows: Sequence[SummaryRow], *, titles: Mapping[str, str], units: Mapping[str, str]
) -> tuple[Picture, ...]:
    """Draw value and 95 % interval before and after of each group, one picture a metric.

    Parameters
    ----------
    rows
        Lines of the table; those without a value on either side are left out.
    titles, units
        Readable title and unit of each metric by name.
    """
    shown = [row for row in rows if row.before is not None and row.after is not None]
    return tuple(
        _forest(metric, [row for row in shown if row.metric == metric], titles, units)
        for metric in dict.fromkeys(row.metric for row in shown)
    )


def _forest(
    metric: str, rows: Sequence[SummaryRow], titles: Mapping[str, str], units: Mapping[str, str]
) -> Picture:
    """Draw one metric."""
    title, unit = titles.get(metric, metric), units.get(metric, "")
    data = {
        "title": title,
        "subtitle": f"Dot: mean{f' ({unit})' if unit else ''}; bar: 95 % interval. "
        "Right: change with its interval",
        "metric": metric,
        "unit": unit,
        "rows": [_twin(row) for row in rows],
    }
    return make_picture(forest_name(metric), data, draw_forest, alt=_alt(title, rows))


def draw_forest(data: Mapping[str, Any]) -> Figure:
    """Draw the twin of one of the `forest_plots`."""
    rows = data["rows"]
    top = head_height(data["title"], data["subtitle"], _WIDTH)
    height = _ROW * len(rows)
    handles = _handles(rows)
    legend_rows = -(-len(handles) // _LEGEND_COLUMNS)
    total = top + height + _AXIS + _LEGEND_ROW * legend_rows + _LEGEND_MARGIN
    figure = new_figure(_WIDTH, total, is_placed=True)
    sheet = Sheet(figure, _WIDTH, total)
    axes = sheet.axes(_MARGIN, top, _WIDTH - 2 * _MARGIN, height)
    scale = scale_for([row[stage] for row in rows for stage in ("before", "after")])
    for position, row in enumerate(rows):
        _draw_row(axes, position, row)
    _ideal_line(axes, rows[0]["ideal"])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks([])
    dress(axes, grid_axis="x")
    axes.spines["left"].set_visible(False)
    # Ticks written as a difference to a number in the corner are misread.
    low, high = axes.get_xlim()
    axes.set_xticks([x for x in MaxNLocator(nbins=5).tick_values(low, high) if low <= x <= high])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value * 10.0**-scale.exponent:g}")
    if scale.times:
        axes.text(1, -0.5, scale.times, ha="right", va="bottom", fontsize=SMALL_SIZE, color=MUTED)
    figure.legend(
        handles=handles,
        loc="lower center",
        ncols=_LEGEND_COLUMNS,
        frameon=False,
        borderpad=0.2,
        fontsize=SMALL_SIZE,
        labelcolor=INK,
    )
    head(figure, data["title"], data["subtitle"])
    return figure


def _draw_row(axes: Axes, position: int, row: Mapping[str, Any]) -> None:
    """Draw one group: name and change above, then the value before and the one after."""
    if position:
        axes.axhline(position - 0.5, color=GRID, lw=1)
    place: dict[str, Any] = {
        "transform": axes.get_yaxis_transform(),
        "va": "center",
        "parse_math": False,
    }
    group = (row["group"] or "all groups").removesuffix(f" {row['unit']}s")
    name = printable(group, limit=_LONGEST_NAME)
    axes.text(0, position + _TEXT, name, fontsize=TEXT_SIZE, color=INK, **place)
    axes.text(
        1, position + _TEXT, _change(row), fontsize=SMALL_SIZE, color=INK, ha="right", **place
    )
    _mark(axes, position + _BEFORE, row["before"], row["ci95_before"], _BEFORE_STYLE)
    _mark(axes, position + _AFTER, row["after"], row["ci95_after"], _STYLES[_verdict(row)])


def _mark(
    axes: Axes,
    height: float,
    value: float,
    interval: Sequence[float] | None,
    style: _Style,
) -> None:
    """Draw one value with its interval, if it has one."""
    color, marker, face = style
    if interval is not None:
        axes.plot(interval, [height, height], color=color, lw=2, solid_capstyle="butt")
    axes.plot([value], [height], marker, mfc=face, mec=color, mew=1.4, ms=5)


def _ideal_line(axes: Axes, ideal: float | None) -> None:
    """Mark the ideal where it lies in or close to the drawn range, so that it cannot squeeze it."""
    if ideal is None:
        return
    low, high = axes.get_xlim()
    margin = 0.2 * (high - low)
    if low - margin <= ideal <= high + margin:
        axes.axvline(ideal, color=INK, lw=1, ls=":")


def _verdict(row: Mapping[str, Any]) -> str:
    """Return the key of `_STYLES`: a row without an ideal cannot get better or worse."""
    if row["ideal"] is None:
        return "not judged (neutral words)"
    if row["improved"] is None:
        return "after: no reliable change"
    return "after: better" if row["improved"] else "after: worse"


def _change(row: Mapping[str, Any]) -> str:
    """Return the change with its interval as text."""
    scale = scale_for([row["before"], row["after"]])
    delta, *ends = signed_alike(scale.scaled([row["delta"], *(row["ci95_delta"] or ())]))
    interval = f" ({' to '.join(ends)})" if ends else ""
    return f"{delta}{interval}{scale.times}"


def _handles(rows: Sequence[Mapping[str, Any]]) -> list[Line2D]:
    """Return the legend of the forest: the marks that occur in it."""
    nothing: list[float] = []
    found = {_verdict(row) for row in rows}
    styles = [("before", _BEFORE_STYLE), *((k, v) for k, v in _STYLES.items() if k in found)]
    return [
        Line2D(nothing, nothing, marker=marker, ls="", mfc=face, mec=color, ms=6, label=label)
        for label, (color, marker, face) in styles
    ]


def _twin(row: SummaryRow) -> dict[str, Any]:
    """Return what is drawn of one line."""
    return {
        "benchmark": row.benchmark,
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


def _alt(title: str, rows: Sequence[SummaryRow]) -> str:
    """Count the verdicts in a sentence."""
    better = sum(row.improved is True for row in rows)
    worse = sum(row.improved is False for row in rows)
    unjudged = sum(row.ideal is None for row in rows)
    rest = len(rows) - better - worse - unjudged
    verb = "is" if unjudged == 1 else "are"
    neutral = f", {unjudged} with neutral words, which {verb} not judged" if unjudged else ""
    return (
        f"Forest plot of {title}, {len(rows)} groups before and after: {better} better, {worse} "
        f"worse, {rest} without a reliable change{neutral}. The table has the same numbers."
    )
