"""Tokens by positions of a layer's output: where two prompts differ."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from workers.reports.component_names import component_label
from workers.reports.picture import (
    CHANGED,
    INK,
    MUTED,
    SMALL_SIZE,
    TEXT_SIZE,
    Picture,
    head,
    head_height,
    make_picture,
    new_figure,
    printable,
)
from workers.reports.raster import (
    AMOUNT_COLORS,
    Sheet,
    bin_width,
    binned,
    color_limit,
    draw_cells,
    draw_color_bar,
    short_rows,
)

# Inches. Narrow enough for its text to be read on a phone.
_WIDTH = 5.2
_LEFT, _RIGHT = 1.3, 0.2
_ROW, _SMALLEST_ROW = 0.19, 0.025
_TALLEST_PANEL = 9.0
# Lines of text need this much.
_TEXT_ROW = 0.13
_LINE = 0.165
_LABEL_LENGTH = 17


@dataclass(frozen=True, slots=True)
class SlotRow:
    """One aligned slot: its label and whether its tokens differ."""

    label: str
    differs: bool


@dataclass(frozen=True, slots=True)
class HeatPanel:
    """The absolute differences of one pair, (slots, width), with a row for each slot."""

    category: str
    prompt_1: str
    prompt_2: str
    slots: Sequence[SlotRow]
    differences: npt.NDArray[np.floating[Any]]


def token_heat_map(
    component: str,
    layer: int,
    panels: Sequence[HeatPanel],
    *,
    stage: Literal["before", "after"] | None = None,
    limit: float | None = None,
) -> Picture:
    """Draw the differences of a few pairs at one place, one panel a pair.

    Parameters
    ----------
    component, layer
        Capture point and layer number.
    panels
        At least one pair; all of one width.
    stage
        Model that the activations come from, None in a job without an edit; `after` is added to
        the name.
    limit
        Difference of the darkest colour; by default the 99th percentile of what is drawn. Give
        that of the picture before to the one after, so that their colours compare.
    """
    width = panels[0].differences.shape[1]
    bins = [binned(panel.differences) for panel in panels]
    where = "" if stage is None else f", {stage} the edit"
    per_cell = bin_width(width)
    cells = "one position" if per_cell == 1 else f"the mean of {per_cell} neighbouring positions"
    data = {
        "title": f"Which tokens differ in the {component_label(component)}, layer {layer}{where}",
        "subtitle": f"Darker: the two prompts of a pair differ more. Each cell is {cells}; the "
        "changed word is bold, and nothing can differ before it",
        "component": component,
        "layer": layer,
        "stage": stage,
        "unit": "mean absolute activation difference",
        "width": width,
        "bin_width": per_cell,
        "limit": color_limit(bins) if limit is None else limit,
        "panels": [_panel_twin(*both) for both in zip(panels, bins, strict=True)],
    }
    name = f"heatmap_{component}_layer_{layer}" + ("_after" if stage == "after" else "")
    return make_picture(name, data, draw_heat_map, alt=_alt(data))


def draw_heat_map(data: Mapping[str, Any]) -> Figure:
    """Draw the twin of `token_heat_map`."""
    titles = [_panel_title(panel) for panel in data["panels"]]
    heights = [_panel_height(len(panel["slots"])) for panel in data["panels"]]
    top = head_height(data["title"], data["subtitle"], _WIDTH)
    total = top + sum(heights) + sum(_LINE * len(lines) + 0.12 for lines in titles) + 1.0
    figure = new_figure(_WIDTH, total, is_placed=True)
    sheet = Sheet(figure, _WIDTH, total)
    inner = _WIDTH - _LEFT - _RIGHT
    limits = (0.0, data["limit"])
    for panel, lines, height in zip(data["panels"], titles, heights, strict=True):
        _write_lines(sheet, top, lines)
        top += _LINE * len(lines) + 0.02
        axes = sheet.axes(_LEFT, top, inner, height)
        draw_cells(axes, panel["values"], width=data["width"], limits=limits, colors=AMOUNT_COLORS)
        _label_rows(axes, panel["slots"], height)
        top += height + 0.1
        if panel is not data["panels"][-1]:
            axes.set_xticklabels([])
    axes.set_xlabel("position in the output", fontsize=TEXT_SIZE, color=INK)
    bar = sheet.axes(_LEFT, top + 0.42, inner, 0.1)
    draw_color_bar(bar, limits=limits, colors=AMOUNT_COLORS, label="mean |difference|")
    head(figure, data["title"], data["subtitle"])
    return figure


def _panel_height(slots: int) -> float:
    """Return inches for so many rows: a long prompt gets thinner ones."""
    return max(min(_ROW, _TALLEST_PANEL / slots), _SMALLEST_ROW) * slots


def _panel_title(panel: Mapping[str, Any]) -> list[str]:
    """Return category and prompts as a few lines."""
    prompts = [
        textwrap.shorten(panel[name], 74, placeholder=" …") for name in ("prompt_1", "prompt_2")
    ]
    return [panel["category"], f"1: {prompts[0]}", f"2: {prompts[1]}"]


def _write_lines(sheet: Sheet, top: float, lines: Sequence[str]) -> None:
    """Write a panel's title, its first line in bold."""
    for number, line in enumerate(lines):
        sheet.figure.text(
            8 / (72 * sheet.width),
            1 - (top + _LINE * number) / sheet.height,
            line,
            va="top",
            fontsize=TEXT_SIZE if number == 0 else SMALL_SIZE,
            fontweight="bold" if number == 0 else "normal",
            color=INK if number == 0 else MUTED,
            parse_math=False,
        )


def _label_rows(axes: Axes, slots: Sequence[Mapping[str, Any]], height: float) -> None:
    """Label every row that has room for it, those of the changed words first."""
    step = max(1, int(np.ceil(_TEXT_ROW * len(slots) / height)))
    changed = [row for row, slot in enumerate(slots) if slot["differs"]][: len(slots) // step or 1]
    rows = [
        row
        for row in range(0, len(slots), step)
        if row not in changed and all(abs(row - other) >= step for other in changed)
    ]
    rows = sorted([*rows, *changed])
    axes.set_yticks(rows, [slots[row]["label"] for row in rows])
    for row, label in zip(rows, axes.get_yticklabels(), strict=True):
        label.set_parse_math(False)
        label.set_color(CHANGED if slots[row]["differs"] else INK)
        label.set_fontweight("bold" if slots[row]["differs"] else "normal")


def _panel_twin(panel: HeatPanel, values: npt.NDArray[np.float64]) -> dict[str, Any]:
    """Return the twin of one pair."""
    return {
        "category": printable(panel.category, 60),
        "prompt_1": printable(panel.prompt_1, 400),
        "prompt_2": printable(panel.prompt_2, 400),
        "slots": [
            {"label": printable(slot.label, _LABEL_LENGTH), "differs": slot.differs}
            for slot in panel.slots
        ],
        "values": short_rows(values),
    }


def _alt(data: Mapping[str, Any]) -> str:
    """Say for each pair which token differs most."""
    sentences = []
    for panel in data["panels"]:
        means = [float(np.mean(row)) for row in panel["values"]]
        strongest = panel["slots"][int(np.argmax(means))]["label"]
        sentences.append(f"{panel['category']}: the largest mean difference is at “{strongest}”.")
    return (
        f"Heat map of the {component_label(data['component'])} in layer {data['layer']}, "
        "tokens by positions. " + " ".join(sentences)
    )
