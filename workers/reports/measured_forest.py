"""What was measured on one model, with intervals: one picture a metric, one line a group."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from workers.reports.picture import (
    AFTER,
    INK,
    MUTED,
    SMALL_SIZE,
    Picture,
    decimals_for,
    dress,
    head,
    head_height,
    make_picture,
    new_figure,
    printable,
    scale_for,
)
from workers.reports.raster import Sheet
from workers.runtime.context import SummaryRow

# Inches.
_WIDTH = 5.2
_LEFT, _RIGHT = 1.6, 1.6
_ROW, _AXIS = 0.33, 0.34


def measured_forests(
    rows: Sequence[SummaryRow], *, titles: Mapping[str, str], units: Mapping[str, str]
) -> tuple[Picture, ...]:
    """Draw value and 95 % interval of each group of a model that was only measured.

    Parameters
    ----------
    rows
        Lines of the table; those without a value are left out. Groups without an ideal (neutral
        control pairs) are drawn hollow.
    titles, units
        Readable title and unit of each metric by name; there is one picture a metric.
    """
    shown = [row for row in rows if row.before is not None]
    return tuple(
        _measured([row for row in shown if row.metric == metric], titles, units)
        for metric in dict.fromkeys(row.metric for row in shown)
    )


def _measured(
    rows: Sequence[SummaryRow], titles: Mapping[str, str], units: Mapping[str, str]
) -> Picture:
    """Draw one metric."""
    metric = rows[0].metric
    unit = units.get(metric, "")
    data = {
        "title": titles.get(metric, metric),
        "subtitle": f"Dot: mean{f' ({unit})' if unit else ''}; bar: 95 % interval. Hollow: "
        "neutral control pairs, for comparison",
        "metric": metric,
        "unit": unit,
        "rows": [
            {
                "group": printable(row.group or "all pairs", 60),
                "value": row.before,
                "ci95": None if row.ci95_before is None else list(row.ci95_before),
                "is_control": row.ideal is None,
                "n": row.n,
                "unit": row.unit,
            }
            for row in rows
        ],
    }
    alt = f"Dot plot of {len(rows)} values of {data['title']} with intervals, as in the table."
    return make_picture(f"measured_{metric}", data, draw_measured, alt=alt)


def draw_measured(data: Mapping[str, Any]) -> Figure:
    """Draw the twin of one of the `measured_forests`."""
    top = head_height(data["title"], data["subtitle"], _WIDTH) + 0.06
    height = _ROW * len(data["rows"])
    total = top + height + _AXIS
    figure = new_figure(_WIDTH, total, is_placed=True)
    axes = Sheet(figure, _WIDTH, total).axes(_LEFT, top, _WIDTH - _LEFT - _RIGHT, height)
    _panel(axes, data["rows"])
    head(figure, data["title"], data["subtitle"])
    return figure


def _panel(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw one metric, its groups from top to bottom, from zero on."""
    for position, row in enumerate(rows):
        color = MUTED if row["is_control"] else AFTER
        if row["ci95"] is not None:
            axes.plot(row["ci95"], [position] * 2, color=color, lw=2.2, solid_capstyle="butt")
        face = "white" if row["is_control"] else color
        axes.plot([row["value"]], [position], "o", mfc=face, mec=color, mew=1.6, ms=6.5)
    for position, text in enumerate(_texts(rows)):
        axes.text(
            1.03,
            position,
            text,
            transform=axes.get_yaxis_transform(),
            va="center",
            fontsize=SMALL_SIZE,
            color=INK,
            linespacing=1.2,
            parse_math=False,
        )
    names = [textwrap.fill(row["group"], 24) for row in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    dress(axes, grid_axis="x")
    axes.set_xlim(left=0)
    axes.ticklabel_format(axis="x", useOffset=False)
    axes.locator_params(axis="x", nbins=4)
    axes.xaxis.get_offset_text().set(fontsize=SMALL_SIZE, color=MUTED)
    for label in axes.get_yticklabels():
        label.set(color=INK, parse_math=False)


def _texts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Write values and intervals with the decimals that the largest of the panel needs."""
    values = [value for row in rows for value in (row["value"], *(row["ci95"] or ()))]
    scale = scale_for(values)
    decimals = decimals_for(scale.scaled(values))
    texts = []
    for row in rows:
        value, *ends = (
            f"{number:.{decimals}f}"
            for number in scale.scaled([row["value"], *(row["ci95"] or ())])
        )
        interval = f" ({' to '.join(ends)})" if ends else ""
        unit = row["unit"] if row["n"] == 1 else f"{row['unit']}s"
        texts.append(f"{value}{interval}{scale.times}\n{row['n']} {unit}")
    return texts
