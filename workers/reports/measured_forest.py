"""What was measured on one model, with intervals: one panel a metric, one line a group."""

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
    TEXT_SIZE,
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
_WIDTH = 6.4
_LEFT, _RIGHT = 1.85, 1.75
_ROW, _TITLE, _AXIS = 0.33, 0.36, 0.34


def measured_forest(rows: Sequence[SummaryRow], *, titles: Mapping[str, str]) -> Picture:
    """Draw value and 95 % interval of each metric and group of a model that was only measured.

    Parameters
    ----------
    rows
        Lines of the table; those without a value are left out. Groups without an ideal (neutral
        control pairs) are drawn hollow.
    titles
        Readable title with unit of each metric by name.
    """
    shown = [row for row in rows if row.before is not None]
    data = {
        "title": "How far the two prompts of a pair lie apart in the model",
        "subtitle": "Dots: mean over pairs; bars: 95 % bootstrap interval. Hollow: neutral control "
        "pairs, for comparison",
        "rows": [
            {
                "metric": row.metric,
                "title": titles.get(row.metric, row.metric),
                "group": printable(row.group or "all pairs", 60),
                "value": row.before,
                "ci95": None if row.ci95_before is None else list(row.ci95_before),
                "is_control": row.ideal is None,
                "n": row.n,
                "unit": row.unit,
            }
            for row in shown
        ],
    }
    metrics = len({row.metric for row in shown})
    alt = f"Dot plot of {len(shown)} values of {metrics} metrics with intervals, as in the table."
    return make_picture("measured", data, draw_measured, alt=alt)


def draw_measured(data: Mapping[str, Any]) -> Figure:
    """Draw the twin of `measured_forest`."""
    metrics = list(dict.fromkeys(row["metric"] for row in data["rows"]))
    grouped = [[row for row in data["rows"] if row["metric"] == metric] for metric in metrics]
    top = head_height(data["title"], data["subtitle"], _WIDTH)
    total = top + sum(_TITLE + _ROW * len(group) + _AXIS for group in grouped) + 0.1
    figure = new_figure(_WIDTH, total, is_placed=True)
    sheet = Sheet(figure, _WIDTH, total)
    for group in grouped:
        top += _TITLE
        height = _ROW * len(group)
        _panel(sheet.axes(_LEFT, top, _WIDTH - _LEFT - _RIGHT, height), group)
        figure.text(
            8 / (72 * _WIDTH),
            1 - (top - 0.07) / total,
            group[0]["title"],
            fontsize=TEXT_SIZE,
            fontweight="bold",
            color=INK,
            parse_math=False,
        )
        top += height + _AXIS
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
    names = [textwrap.fill(row["group"], 27) for row in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    dress(axes, grid_axis="x")
    axes.set_xlim(left=0)
    axes.ticklabel_format(axis="x", useOffset=False)
    axes.locator_params(axis="x", nbins=5)
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
