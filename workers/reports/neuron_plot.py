"""Where the neurons that react most to each category sit, and how far the sets overlap."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from workers.reports.picture import (
    CHANGED,
    GRID,
    INK,
    MUTED,
    SMALL_SIZE,
    Picture,
    dress,
    head,
    head_height,
    make_picture,
    new_figure,
    printable,
)
from workers.reports.raster import Sheet
from workers.reports.wording import counted

MAX_CATEGORIES = 5
"""Categories that are drawn: further colours could not be told apart."""

# Okabe and Ito; each category has a marker of its own as well.
_STYLES = (("#0072b2", "o"), ("#e69f00", "s"), ("#009e73", "^"), ("#cc79a7", "D"), ("#56b4e9", "v"))

# Inches.
_WIDTH = 6.4
_LEFT, _RIGHT = 0.62, 0.2
_ROW, _SHORTEST, _TALLEST = 0.3, 1.3, 4.5
_JACCARD_ROW = 0.26
_JACCARD_LEFT = 1.75
_LEGEND, _LEGEND_COLUMNS = 0.26, 4
# From so many markers on they are drawn pale, so that the shared ones are still seen.
_CROWD = 2000
# Height of the band in which the categories of one layer lie, in layers.
_SPREAD = 0.62


@dataclass(frozen=True, slots=True)
class Overlap:
    """Jaccard index of the top sets of two categories beside that of random sets."""

    categories: tuple[str, str]
    jaccard: float
    random_mean: float
    random_95th_percentile: float


def neuron_map_picture(
    categories: Sequence[str],
    layers: Sequence[Mapping[str, Sequence[int]]],
    overlaps: Sequence[Overlap],
    *,
    neurons: int,
    pair_counts: Mapping[str, int],
) -> Picture:
    """Draw the top neurons of each category by layer, and the overlap of their sets.

    Parameters
    ----------
    categories
        In the order of the legend; the first `MAX_CATEGORIES` are drawn.
    layers
        For each layer the neuron numbers of every category.
    overlaps
        Every two categories, over all layers together; those of categories that are not drawn
        are left out.
    neurons
        Neurons of one layer.
    pair_counts
        Pairs behind each category's set.
    """
    shown = list(categories[:MAX_CATEGORIES])
    rest = len(categories) - len(shown)
    left_out = f"; {rest} more categories are in neuron_map.json" if rest > 0 else ""
    data = {
        "title": "Neurons that react most to each category, by layer",
        "subtitle": "A dark bar marks neurons that react most to two or more categories"
        f"{left_out}. Below: how far the sets overlap, beside random sets of the same size",
        "neurons": neurons,
        "categories": [
            {"name": printable(name, 30), "pairs": int(pair_counts[name])} for name in shown
        ],
        "layers": [[sorted(map(int, layer[name])) for name in shown] for layer in layers],
        "overlap": [
            {
                "categories": [printable(name, 30) for name in entry.categories],
                "jaccard": float(entry.jaccard),
                "random_mean": float(entry.random_mean),
                "random_95th_percentile": float(entry.random_95th_percentile),
            }
            for entry in overlaps
            if set(entry.categories) <= set(shown)
        ],
    }
    return make_picture("neuron_map", data, draw_neuron_map, alt=_alt(data))


def draw_neuron_map(data: Mapping[str, Any]) -> Figure:
    """Draw the twin of `neuron_map_picture`."""
    layers, overlap = data["layers"], data["overlap"]
    map_height = min(max(_ROW * len(layers), _SHORTEST), _TALLEST)
    top = head_height(data["title"], data["subtitle"], _WIDTH)
    top += _LEGEND * (1 + len(data["categories"]) // _LEGEND_COLUMNS)
    below = 0.8 + _JACCARD_ROW * len(overlap) if overlap else 0.0
    total = top + map_height + 0.5 + below
    figure = new_figure(_WIDTH, total, is_placed=True)
    sheet = Sheet(figure, _WIDTH, total)
    axes = sheet.axes(_LEFT, top, _WIDTH - _LEFT - _RIGHT, map_height)
    _draw_sets(axes, data, row_points=72 * map_height / len(layers))
    _draw_legend(sheet, data, head_height(data["title"], data["subtitle"], _WIDTH))
    if overlap:
        width = _WIDTH - _JACCARD_LEFT - _RIGHT
        height = _JACCARD_ROW * len(overlap)
        _draw_overlap(sheet.axes(_JACCARD_LEFT, top + map_height + 0.5, width, height), overlap)
        _overlap_legend(sheet)
    head(figure, data["title"], data["subtitle"])
    return figure


def _draw_sets(axes: Axes, data: Mapping[str, Any], *, row_points: float) -> None:
    """Draw one marker a neuron and category, and a bar behind the shared ones."""
    layers, count = data["layers"], len(data["categories"])
    size = max(1.6, min(5.0, 0.62 * row_points / count))
    marks = sum(len(members) for sets in layers for members in sets)
    shared = [(n, row) for row, sets in enumerate(layers) for n in _shared(sets)]
    if shared:
        neurons, rows = zip(*shared, strict=True)
        axes.vlines(
            neurons,
            [row - 0.44 for row in rows],
            [row + 0.44 for row in rows],
            color=INK,
            linewidth=max(1.2, 0.45 * size),
            zorder=2,
        )
    for number in range(count):
        color, marker = _STYLES[number]
        shift = _SPREAD * ((number + 0.5) / count - 0.5)
        xs = [n for sets in layers for n in sets[number]]
        ys = [row + shift for row, sets in enumerate(layers) for _ in sets[number]]
        strength = 1.0 if marks <= _CROWD else 0.4
        axes.plot(xs, ys, marker, ls="", color=color, ms=size, mew=0, alpha=strength, zorder=3)
    dress(axes, x_label=f"neuron (of {data['neurons']:,} in each layer)", y_label="layer")
    axes.set_xlim(-0.01 * data["neurons"], 1.01 * data["neurons"])
    axes.set_ylim(len(layers) - 0.5, -0.5)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=12, integer=True, min_n_ticks=1))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.grid(visible=False)
    for row in range(1, len(layers)):
        axes.axhline(row - 0.5, color=GRID, lw=0.5, zorder=1)


def _shared(sets: Sequence[Sequence[int]]) -> list[int]:
    """Return the neurons that are in two or more of the sets."""
    seen: dict[int, int] = {}
    for members in sets:
        for neuron in members:
            seen[neuron] = seen.get(neuron, 0) + 1
    return sorted(neuron for neuron, count in seen.items() if count > 1)


def _draw_legend(sheet: Sheet, data: Mapping[str, Any], top: float) -> None:
    """Name the categories, and what the bar means."""
    nothing: list[float] = []
    handles = [
        Line2D(nothing, nothing, marker=marker, ls="", color=color, ms=5.5, mew=0,
               label=f"{entry['name']} ({counted(entry['pairs'], 'pair')})")
        for entry, (color, marker) in zip(data["categories"], _STYLES, strict=False)
    ]  # fmt: skip
    if len(handles) > 1:
        handles.append(
            Line2D(nothing, nothing, marker="|", ls="", color=INK, ms=9, mew=2, label="shared")
        )
    _place_legend(sheet, handles, top, left=_LEFT)


def _place_legend(
    sheet: Sheet, handles: Sequence[Line2D | Patch], top: float, *, left: float
) -> None:
    sheet.figure.legend(
        handles=list(handles),
        loc="upper left",
        bbox_to_anchor=(left / sheet.width, 1 - top / sheet.height),
        ncols=_LEGEND_COLUMNS,
        frameon=False,
        borderpad=0,
        borderaxespad=0,
        columnspacing=1.2,
        handletextpad=0.3,
        fontsize=SMALL_SIZE,
        labelcolor=INK,
    )


def _draw_overlap(axes: Axes, overlap: Sequence[Mapping[str, Any]]) -> None:
    """Draw each Jaccard index over the range in which 95 % of random sets lie."""
    for row, entry in enumerate(overlap):
        axes.barh(row, entry["random_95th_percentile"], 0.5, color=GRID)
        axes.plot([entry["random_mean"]] * 2, [row - 0.3, row + 0.3], color=MUTED, lw=1.5)
        axes.plot([entry["jaccard"]], [row], "o", color=CHANGED, ms=6)
    names = [" and ".join(entry["categories"]) for entry in overlap]
    axes.set_yticks(range(len(overlap)), [printable(name, 27) for name in names])
    axes.set_ylim(len(overlap) - 0.5, -0.5)
    ends = [max(entry["jaccard"], entry["random_95th_percentile"]) for entry in overlap]
    # At least a twentieth of the whole, so that sets without overlap are not drawn as noise.
    right = min(1.0, max(1.15 * max(ends), 0.05))
    axes.set_xlim(-0.02 * right, 1.02 * right)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
    dress(axes, x_label="Jaccard index of the two sets (1: the same neurons)", grid_axis="x")
    axes.tick_params(axis="y", labelcolor=INK)
    for label in axes.get_yticklabels():
        label.set_parse_math(False)


def _overlap_legend(sheet: Sheet) -> None:
    """Explain dot, line and bar."""
    nothing: list[float] = []
    handles: list[Line2D | Patch] = [
        Line2D(nothing, nothing, marker="o", ls="", color=CHANGED, ms=6, label="these sets"),
        Line2D(nothing, nothing, marker="|", ls="", color=MUTED, ms=9, mew=1.5,
               label="random sets, mean"),
        Patch(color=GRID, label="up to their 95th percentile"),
    ]  # fmt: skip
    _place_legend(sheet, handles, sheet.height - 0.2, left=_LEFT)


def _alt(data: Mapping[str, Any]) -> str:
    """Say how many neurons are shared, and how the overlaps compare with chance."""
    shared = sum(len(_shared(sets)) for sets in data["layers"])
    names = ", ".join(entry["name"] for entry in data["categories"])
    text = f"Top neurons of {names} in {len(data['layers'])} layers; {shared} are shared."
    if not data["overlap"]:
        return text
    beyond = sum(e["jaccard"] > e["random_95th_percentile"] for e in data["overlap"])
    return f"{text} {beyond} of {len(data['overlap'])} overlaps are beyond random sets."
