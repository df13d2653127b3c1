"""Pictures of depth, results and controls. Each returns a `Picture` with its JSON twin."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from workers.reports.component_names import component_label
from workers.reports.picture import (
    AFTER,
    BEFORE,
    CONTROL,
    INK,
    MUTED,
    SMALL_SIZE,
    TEXT_SIZE,
    Picture,
    dress,
    head,
    head_height,
    legend_below,
    make_picture,
    new_figure,
)
from workers.reports.raster import Sheet

Stage = Literal["before", "after", "control"]

# Line and colour of each stage: never colour alone.
_STAGE_STYLE: Mapping[str, tuple[str, str, str]] = {
    "before": (BEFORE, "-", "before the edit"),
    "after": (AFTER, "--", "after the edit"),
    "control": (CONTROL, ":", "neutral control pairs, before"),
}

_STYLE_WITHOUT_EDIT: Mapping[str, tuple[str, str, str]] = {
    "before": (AFTER, "-", "demographic pairs"),
    "control": (CONTROL, ":", "neutral control pairs"),
}


@dataclass(frozen=True, slots=True)
class Curve:
    """A value over depth: one mean a layer, with a band where there are several pairs.

    `low` and `high` are the 10th and 90th percentile over pairs: the band shows how pairs differ,
    not how precise their mean is.
    """

    component: str
    stage: Stage
    mean: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


@dataclass(frozen=True, slots=True)
class ControlDots:
    """Reductions on one set of pairs, in percent of the value before.

    Positive means that the internal difference got smaller, negative that it grew.
    """

    pairs: str
    selection: float
    random: Sequence[float]
    importance_only: float | None


def mean_diff_bars(
    component: str, before: Sequence[float], after: Sequence[float] | None, *, n_pairs: int
) -> Picture:
    """Draw the mean absolute activation difference of each layer, before and after.

    Parameters
    ----------
    component
        Capture point, as in `mlp_output`.
    before, after
        One value a layer: the plain mean over pairs. `after` is None without an edit.
    n_pairs
        Number of pairs averaged.
    """
    data = {
        "title": f"Difference by layer: {component_label(component)}",
        "subtitle": f"Mean absolute activation difference, mean over {_count(n_pairs, 'pair')}",
        "component": component,
        "unit": "mean absolute activation difference",
        "n_pairs": n_pairs,
        "layers": list(range(len(before))),
        "before": _floats(before),
        "after": None if after is None else _floats(after),
    }
    return make_picture(
        f"mean_diff_{component}", data, draw_mean_diff, alt=_mean_diff_alt(component, before, after)
    )


def draw_mean_diff(data: Mapping[str, Any]) -> Figure:
    """Draw the twin of `mean_diff_bars`."""
    layers, after = data["layers"], data["after"]
    figure = new_figure(_depth_width(len(layers)), 3.1)
    axes = figure.add_subplot()
    width = 0.8 if after is None else 0.4
    shift = 0.0 if after is None else width / 2
    axes.bar([x - shift for x in layers], data["before"], width, color=BEFORE, label="before")
    if after is not None:
        axes.bar([x + shift for x in layers], after, width, color=AFTER, label="after")
        figure.legend(
            loc="outside lower center", ncols=2, frameon=False, fontsize=TEXT_SIZE, labelcolor=INK
        )
    _depth_axis(axes, len(layers))
    dress(axes, x_label="layer", y_label="mean |difference|")
    head(figure, data["title"], data["subtitle"])
    return figure


def amplification_curves(
    curves: Sequence[Curve], *, threshold: float | None, n_pairs: int
) -> Picture:
    """Draw how the relative difference grows over depth, one panel a component.

    Parameters
    ----------
    curves
        Curves of relative difference over affected slots; order of components is kept.
    threshold
        Height of the reading line, None for none.
    n_pairs
        Number of pairs averaged.
    """
    banded = any(curve.low is not None for curve in curves)
    band = "; band: middle 80 % of the pairs" if banded else ""
    data = {
        "title": "How the difference changes with depth",
        "subtitle": "Relative activation difference (difference / mean magnitude), mean over "
        f"{_count(n_pairs, 'pair')}{band}",
        "unit": "relative activation difference",
        "n_pairs": n_pairs,
        "threshold": threshold,
        "curves": [_curve(curve) for curve in curves],
    }
    components = list(dict.fromkeys(curve.component for curve in curves))
    names = ", ".join(map(component_label, components))
    alt = f"Line charts over layers for {names}: relative difference by stage."
    return make_picture("amplification", data, draw_amplification, alt=alt)


def draw_amplification(data: Mapping[str, Any]) -> Figure:
    """Draw the twin of `amplification_curves`."""
    components = list(dict.fromkeys(curve["component"] for curve in data["curves"]))
    width, left, panel, gap = 6.4, 0.62, 1.4, 0.3
    top = head_height(data["title"], data["subtitle"], width)
    total = top + (panel + gap) * len(components) + 0.8
    figure = new_figure(width, total, is_placed=True)
    sheet = Sheet(figure, width, total)
    highest = max(max(curve["high"] or curve["mean"]) for curve in data["curves"])
    stages = _stage_styles(data)
    for component in components:
        top += gap
        axes = sheet.axes(left, top, width - left - 0.2, panel)
        curves = [c for c in data["curves"] if c["component"] == component]
        _amplification_panel(axes, curves, data["threshold"], stages)
        axes.set_ylim(0, 1.05 * max(highest, data["threshold"] or 0) or None)
        axes.set_title(
            component_label(component), fontsize=TEXT_SIZE, color=INK, loc="left", parse_math=False
        )
        if component != components[-1]:
            axes.set_xlabel("")
            axes.set_xticklabels([])
        top += panel
    _stage_legend(figure, data, stages)
    head(figure, data["title"], data["subtitle"])
    return figure


def controls_dots(
    evaluations: Sequence[ControlDots], *, unit: str = "percent of the value before"
) -> Picture:
    """Draw the reduction of the selection beside those of the removal controls, as dots.

    Parameters
    ----------
    evaluations
        One entry a set of pairs; its name should give n, as in "held-out pairs (n = 8)".
    unit
        Unit of the reductions.
    """
    data = {
        "title": "Reduction by this selection and by the removal controls",
        "subtitle": "Behavioural reduction of the internal difference; each control takes as much "
        "out of every layer",
        "unit": unit,
        "evaluations": [
            {
                "pairs": entry.pairs,
                "selection": float(entry.selection),
                "random": _floats(entry.random),
                "importance_only": _float(entry.importance_only),
            }
            for entry in evaluations
        ],
    }
    return make_picture("controls", data, draw_controls, alt=_controls_alt(evaluations))


def draw_controls(data: Mapping[str, Any]) -> Figure:
    """Draw the twin of `controls_dots`."""
    evaluations = data["evaluations"]
    figure = new_figure(6.4, 1.8 + 0.5 * len(evaluations))
    axes = figure.add_subplot()
    axes.axvline(0, color=MUTED, linewidth=1)
    for row, entry in enumerate(evaluations):
        _control_row(axes, row, entry)
    axes.set_yticks(range(len(evaluations)), [entry["pairs"] for entry in evaluations])
    axes.set_ylim(len(evaluations) - 0.45, -0.55)
    axes.margins(x=0.08)
    dress(
        axes,
        x_label=f"← grew      reduction, {data['unit']}      shrank →",
        grid_axis="x",
    )
    axes.tick_params(axis="y", labelsize=TEXT_SIZE, labelcolor=INK)
    legend_below(figure, _control_handles(), columns=3)
    head(figure, data["title"], data["subtitle"])
    return figure


def _control_row(axes: Axes, row: int, entry: Mapping[str, Any]) -> None:
    """Put the dots of one set of pairs on one line: controls below, the selection above."""
    draws = entry["random"]
    axes.plot(draws, [row + 0.14] * len(draws), "o", mfc="none", mec=BEFORE, ms=7, mew=1.3)
    if entry["importance_only"] is not None:
        axes.plot([entry["importance_only"]], [row + 0.14], "D", color=CONTROL, ms=7)
    axes.plot([entry["selection"]], [row - 0.14], "o", color=AFTER, ms=9)


def _control_handles() -> list[Line2D]:
    """Return the legend of `draw_controls`."""
    nothing: list[float] = []
    return [
        Line2D(nothing, nothing, marker="o", ls="", color=AFTER, ms=8, label="this selection"),
        Line2D(
            nothing, nothing, marker="D", ls="", color=CONTROL, ms=6, label="least important only"
        ),
        Line2D(
            nothing, nothing, marker="o", ls="", mfc="none", mec=BEFORE, ms=7, label="random draw"
        ),
    ]


def _stage_styles(data: Mapping[str, Any]) -> dict[str, tuple[str, str, str]]:
    """Return colour, line and name of each stage; without an edit there is no before."""
    present = {curve["stage"] for curve in data["curves"]}
    styles = _STAGE_STYLE if "after" in present else {**_STAGE_STYLE, **_STYLE_WITHOUT_EDIT}
    return {stage: style for stage, style in styles.items() if stage in present}


def _amplification_panel(
    axes: Axes,
    curves: Sequence[Mapping[str, Any]],
    threshold: float | None,
    stages: Mapping[str, tuple[str, str, str]],
) -> None:
    """Draw the curves of one component."""
    for curve in curves:
        color, line, _ = stages[curve["stage"]]
        layers = range(len(curve["mean"]))
        marker = "o" if len(layers) == 1 else None
        axes.plot(layers, curve["mean"], color=color, ls=line, lw=1.8, marker=marker)
        if curve["low"] is not None:
            axes.fill_between(
                layers, curve["low"], curve["high"], color=color, alpha=0.18, linewidth=0
            )
    if threshold is not None:
        axes.axhline(threshold, color=INK, lw=0.8, ls=(0, (1, 3)))
    _depth_axis(axes, max(len(curve["mean"]) for curve in curves))
    dress(axes, x_label="layer", y_label="relative difference")


def _stage_legend(
    figure: Figure, data: Mapping[str, Any], stages: Mapping[str, tuple[str, str, str]]
) -> None:
    """Name the stages that occur, and the reading line."""
    nothing: list[float] = []
    handles = [
        Line2D(nothing, nothing, color=color, ls=line, lw=1.8, label=label)
        for color, line, label in stages.values()
    ]
    if data["threshold"] is not None:
        label = f"reading line {data['threshold']:g}"
        handles.append(Line2D(nothing, nothing, color=INK, lw=0.8, ls=(0, (1, 3)), label=label))
    figure.legend(
        handles=handles,
        loc="lower center",
        ncols=len(handles) if len(handles) < 4 else 2,
        frameon=False,
        borderpad=0.2,
        fontsize=SMALL_SIZE,
        labelcolor=INK,
    )


def _depth_axis(axes: Axes, layers: int) -> None:
    """Show whole layer numbers, all layers in view."""
    axes.set_xlim(-0.7, layers - 0.3)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=12, integer=True, min_n_ticks=1))


def _depth_width(layers: int) -> float:
    """Return a width in inches at which two bars a layer stay apart on paper."""
    return min(12.0, max(5.2, 1.6 + 0.12 * layers))


def _curve(curve: Curve) -> dict[str, Any]:
    """Return the twin of one curve."""
    return {
        "component": curve.component,
        "stage": curve.stage,
        "mean": _floats(curve.mean),
        "low": None if curve.low is None else _floats(curve.low),
        "high": None if curve.high is None else _floats(curve.high),
    }


def _mean_diff_alt(component: str, before: Sequence[float], after: Sequence[float] | None) -> str:
    """Describe the bars in a sentence."""
    text = (
        f"Bar chart of the mean absolute difference of the {component_label(component)} over "
        f"{len(before)} layers"
    )
    if after is None:
        return f"{text}."
    lower = sum(b > a for b, a in zip(before, after, strict=True))
    higher = sum(b < a for b, a in zip(before, after, strict=True))
    return f"{text}: lower after the edit in {lower} layers, higher in {higher}."


def _controls_alt(evaluations: Sequence[ControlDots]) -> str:
    """Describe the dots in sentences."""
    sentences = []
    for entry in evaluations:
        beaten = sum(entry.selection > draw for draw in entry.random)
        sentences.append(
            f"On {entry.pairs} the behavioural reduction by the selection is "
            f"{entry.selection:.3g} %, "
            f"more than {beaten} of {len(entry.random)} random draws."
        )
    return "Dot plot. " + " ".join(sentences)


def _count(number: int, noun: str) -> str:
    """Return the number with its noun in the right form."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _float(value: float | None) -> float | None:
    """Return a plain number, or None."""
    return None if value is None else float(value)


def _floats(values: Sequence[float]) -> list[float]:
    """Return plain numbers."""
    return [float(value) for value in values]
