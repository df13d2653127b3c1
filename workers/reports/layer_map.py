"""Layers by positions: in which direction the second prompt of a pair moves the outputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from workers.reports.component_names import component_label
from workers.reports.picture import (
    INK,
    TEXT_SIZE,
    Picture,
    head,
    head_height,
    make_picture,
    new_figure,
    printable,
)
from workers.reports.raster import (
    SIGN_COLORS,
    Sheet,
    bin_width,
    binned,
    color_limit,
    draw_cells,
    draw_color_bar,
    short_rows,
)

MAX_PANELS = 5
"""Categories of one picture: more panels would not fit one page."""

# Inches.
_WIDTH = 5.2
_LEFT, _RIGHT = 0.62, 0.2
_ROW = 0.16
_LOWEST, _TALLEST = 0.8, 3.4
_TITLE = 0.24


@dataclass(frozen=True, slots=True)
class LayerPanel:
    """Mean of prompt 2 minus prompt 1 of one category, (layers, width)."""

    category: str
    n_pairs: int
    differences: npt.NDArray[np.floating[Any]]


def layer_position_map(
    component: str,
    panels: Sequence[LayerPanel],
    *,
    stage: Literal["before", "after"] | None = None,
    limit: float | None = None,
) -> Picture:
    """Draw the signed mean differences of each category over all layers.

    Parameters
    ----------
    component
        Capture point.
    panels
        At least one category; the first `MAX_PANELS` are drawn.
    stage
        Model that the activations come from, None in a job without an edit; `after` is added to
        the name.
    limit
        Value of the deepest colours, on both sides of zero; by default the 99th percentile of
        the absolute values that are drawn.
    """
    shown = panels[:MAX_PANELS]
    bins = [binned(panel.differences) for panel in shown]
    width = shown[0].differences.shape[1]
    where = "" if stage is None else f", {stage} the edit"
    per_cell = bin_width(width)
    cells = "one position" if per_cell == 1 else f"the mean of {per_cell} neighbouring positions"
    data = {
        "title": f"How the {component_label(component)} moves from prompt 1 to prompt 2, by layer"
        f"{where}",
        "subtitle": "Mean of prompt 2 minus prompt 1, over tokens and pairs; the sign depends on "
        f"which prompt of a pair comes second. Each cell is {cells}",
        "component": component,
        "stage": stage,
        "unit": "mean activation difference, prompt 2 - prompt 1",
        "width": width,
        "bin_width": per_cell,
        "limit": color_limit(bins) if limit is None else limit,
        "panels": [
            {
                "category": printable(panel.category, 60),
                "n_pairs": panel.n_pairs,
                "values": short_rows(values),
            }
            for panel, values in zip(shown, bins, strict=True)
        ],
    }
    name = f"layer_neuron_{component}" + ("_after" if stage == "after" else "")
    return make_picture(name, data, draw_layer_map, alt=_alt(data))


def draw_layer_map(data: Mapping[str, Any]) -> Figure:
    """Draw the twin of `layer_position_map`."""
    panels = data["panels"]
    height = min(max(_ROW * len(panels[0]["values"]), _LOWEST), _TALLEST)
    top = head_height(data["title"], data["subtitle"], _WIDTH)
    total = top + len(panels) * (_TITLE + height + 0.1) + 1.0
    figure = new_figure(_WIDTH, total, is_placed=True)
    sheet = Sheet(figure, _WIDTH, total)
    inner = _WIDTH - _LEFT - _RIGHT
    limits = (-data["limit"], data["limit"])
    for panel in panels:
        top += _TITLE
        axes = sheet.axes(_LEFT, top, inner, height)
        draw_cells(axes, panel["values"], width=data["width"], limits=limits, colors=SIGN_COLORS)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
        axes.set_ylabel("layer", fontsize=TEXT_SIZE, color=INK)
        count = f"{panel['n_pairs']} pair" + ("" if panel["n_pairs"] == 1 else "s")
        title = f"{panel['category']} ({count})"
        axes.set_title(title, fontsize=TEXT_SIZE, color=INK, loc="left", parse_math=False)
        if panel is not panels[-1]:
            axes.set_xticklabels([])
        top += height + 0.1
    axes.set_xlabel("position in the output", fontsize=TEXT_SIZE, color=INK)
    bar = sheet.axes(_LEFT, top + 0.42, inner, 0.1)
    label = "← lower for prompt 2     mean difference     higher →"
    draw_color_bar(bar, limits=limits, colors=SIGN_COLORS, label=label)
    head(figure, data["title"], data["subtitle"])
    return figure


def _alt(data: Mapping[str, Any]) -> str:
    """Say for each category in which layer the outputs move most."""
    sentences = []
    for panel in data["panels"]:
        strength = np.abs(panel["values"]).mean(axis=1)
        sentences.append(f"{panel['category']}: strongest in layer {int(np.argmax(strength))}.")
    layers = len(data["panels"][0]["values"])
    return (
        f"Map of {data['component']} over {layers} layers, orange where prompt 2 is higher and "
        "blue where it is lower. " + " ".join(sentences)
    )
