"""The activations of a prompt pair in the plane of their first two principal components."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation

from workers.reports.component_names import component_label
from workers.reports.pca import fit_pca
from workers.reports.picture import (
    AFTER,
    CHANGED,
    CONTROL,
    DPI,
    GRID,
    INK,
    MUTED,
    SMALL_SIZE,
    Picture,
    dress,
    head,
    legend_below,
    make_picture,
    new_figure,
    printable,
)

# Boxes in pixels: x0, y0, x1, y1.
_Pixels = npt.NDArray[np.float64]

# Steps, in points, by which a label may leave its midpoint when another one sits there, the
# nearest first; up and down before sideways, since labels are wide.
_NUDGES = sorted(
    ((26.0 * across, 11.0 * up) for across in range(-4, 5) for up in range(-9, 10)),
    key=lambda step: (abs(step[0]) + abs(step[1]), -step[1], -step[0]),
)
# Points that a label keeps clear of the frame.
_FRAME = 2.0
# The square is hollow, so that points of equal place can both be seen.
_POINT_STYLES: Mapping[str, Mapping[str, Any]] = {
    "prompt_1": {"marker": "o", "color": AFTER, "ms": 5},
    "prompt_2": {"marker": "s", "mfc": "none", "mec": CONTROL, "mew": 1.5, "ms": 8},
}
# Half the side, in points, of the square around a point that labels keep clear of.
_POINT_REACH = 4.0


@dataclass(frozen=True, slots=True)
class Slot:
    """Rows of both prompts that belong together.

    Usually one row each; several where a changed span is compared by its mean. `differs` marks
    slots whose token ids differ.
    """

    rows_1: Sequence[int]
    rows_2: Sequence[int]
    differs: bool


@dataclass(frozen=True, slots=True)
class PairActivations:
    """Activations of one component and layer for both prompts of a pair.

    `rows_1` has shape (n1, width) and `tokens_1` n1 decoded labels, likewise for prompt 2. Rows
    of special tokens are left out by the caller, who numbers the slots accordingly.
    """

    tokens_1: Sequence[str]
    tokens_2: Sequence[str]
    rows_1: npt.NDArray[np.floating]
    rows_2: npt.NDArray[np.floating]
    slots: Sequence[Slot]


def pca_plane(
    component: str,
    layer: int,
    activations: PairActivations,
    *,
    stage: Literal["before", "after"] | None = "before",
    before: Mapping[str, Any] | None = None,
) -> Picture | None:
    """Draw both prompts of a pair in one plane, with an arrow for each aligned slot.

    Parameters
    ----------
    component, layer
        Capture point and layer number.
    activations
        Rows, labels and slots of the pair.
    stage
        Model that the activations come from, None in a job without an edit; `after` is added to
        the name of the picture.
    before
        Twin of the picture before the edit, where this is the one after. The sign of an axis is
        arbitrary: here each points to the same side as before, as far as the tokens tell.

    Returns
    -------
    Picture or None
        None where both prompts together have fewer than three rows.
    """
    twin = _plane_twin(activations, before)
    if twin is None:
        return None
    where = "" if stage is None else f", {stage} the edit"
    data = {
        "title": f"Tokens of the two prompts in the {component_label(component)}, layer {layer}"
        f"{where}",
        "subtitle": "First two principal components of the activations; arrows go from prompt 1 "
        "to prompt 2",
        "component": component,
        "layer": layer,
        "stage": stage,
        **twin,
    }
    name = f"pca_{component}_layer_{layer}" + ("_after" if stage == "after" else "")
    return make_picture(name, data, draw_pca, alt=_alt(component, layer, twin["slots"]))


def draw_pca(data: Mapping[str, Any]) -> Figure:
    """Draw the twin of `pca_plane`."""
    figure = new_figure(5.6, 4.6)
    axes = figure.add_subplot()
    for name, style in _POINT_STYLES.items():
        points = data[name]
        axes.plot([p["x"] for p in points], [p["y"] for p in points], ls="", **style)
    for slot in data["slots"]:
        _arrow(axes, slot)
    ratio = [f"{100 * value:.1f} % of variance" for value in data["explained_variance_ratio"]]
    dress(axes, x_label=f"PC1 ({ratio[0]})", y_label=f"PC2 ({ratio[1]})", grid_axis="both")
    axes.margins(0.1)
    legend_below(figure, _handles(), columns=3)
    head(figure, data["title"], data["subtitle"])
    _place_labels(figure, axes, data["slots"])
    return figure


def _arrow(axes: Axes, slot: Mapping[str, Any]) -> None:
    """Draw the arrow of one slot from prompt 1 to prompt 2."""
    color = CHANGED if slot["differs"] else MUTED
    axes.annotate(
        "",
        xy=slot["to"],
        xytext=slot["from"],
        arrowprops={
            "arrowstyle": "-|>",
            "color": color,
            "lw": 1.4 if slot["differs"] else 0.9,
            "shrinkA": 3,
            "shrinkB": 3,
        },
    )


def _place_labels(figure: Figure, axes: Axes, slots: Sequence[Mapping[str, Any]]) -> None:
    """Label each slot at its midpoint, moved up or down where another label sits.

    Slots that differ are placed first: they are the ones the reader looks for.
    """
    canvas = FigureCanvasAgg(figure)
    # Lays everything out; the pixels are drawn once, when all labels have their place.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    taken = [_reach(axes, slot[end]) for slot in slots for end in ("from", "to")]
    for slot in sorted(slots, key=lambda slot: not slot["differs"]):
        taken.append(_place_label(axes, canvas, slot, np.array(taken)))


def _reach(axes: Axes, point: Sequence[float]) -> _Pixels:
    """Return the square around a point."""
    place: _Pixels = axes.transData.transform(point)
    half = _POINT_REACH * DPI / 72
    return np.concatenate([place - half, place + half])


def _place_label(
    axes: Axes, canvas: FigureCanvasAgg, slot: Mapping[str, Any], taken: _Pixels
) -> _Pixels:
    """Place one label at the nearest free spot inside the frame and return the box it fills.

    Where none is free, it stands where it hides least.
    """
    label = _label(axes, slot)
    label.set_position((0.0, 0.0))
    box = np.array(label.get_window_extent(canvas.get_renderer()).extents)
    scale = DPI / 72
    frame = np.array(axes.bbox.padded(-_FRAME * scale).extents)
    boxes = box + scale * np.tile(_NUDGES, 2)  # (places, 4)
    hidden = _hidden(boxes, taken)
    hidden[~_contains(frame, boxes)] = np.inf
    # A label wider than the whole frame has no place inside: it stays at its midpoint.
    best = int(np.argmin(hidden))
    x, y = _NUDGES[best]
    label.set_position((x, y))
    if x or y:
        axes.annotate(
            "",
            xy=slot["midpoint"],
            xytext=(x, y),
            textcoords="offset points",
            arrowprops={"arrowstyle": "-", "color": GRID, "lw": 0.8, "shrinkA": 0, "shrinkB": 0},
            zorder=1,
        )
    return np.asarray(boxes[best])


def _contains(frame: _Pixels, boxes: _Pixels) -> npt.NDArray[np.bool_]:
    """Say which boxes lie inside the frame."""
    return np.asarray((boxes[:, :2] >= frame[:2]).all(1) & (boxes[:, 2:] <= frame[2:]).all(1))


def _hidden(boxes: _Pixels, taken: _Pixels) -> _Pixels:
    """Return the area, in square pixels, that each box shares with what is there already."""
    low = np.maximum(boxes[:, None, :2], taken[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], taken[None, :, 2:])
    return np.asarray((high - low).clip(min=0).prod(axis=2).sum(axis=1))


def _label(axes: Axes, slot: Mapping[str, Any]) -> Annotation:
    """Return the label of one slot at its midpoint."""
    return axes.annotate(
        slot["label"],
        xy=slot["midpoint"],
        xytext=(0, 0),
        textcoords="offset points",
        ha="center",
        va="center",
        fontsize=SMALL_SIZE + 1 if slot["differs"] else SMALL_SIZE,
        fontweight="bold" if slot["differs"] else "normal",
        color=CHANGED if slot["differs"] else INK,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.8},
        # A token with two dollar signs is text, not a formula.
        parse_math=False,
        zorder=5,
    )


def _handles() -> list[Line2D]:
    """Return the legend of the plane."""
    nothing: list[float] = []
    return [
        *(
            Line2D(nothing, nothing, ls="", label=name.replace("_", " "), **style)
            for name, style in _POINT_STYLES.items()
        ),
        Line2D(nothing, nothing, color=CHANGED, lw=1.4, label="tokens differ"),
    ]


def _plane_twin(
    activations: PairActivations, before: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """Return points and slots in the plane of both prompts, None with too few rows."""
    rows_1, rows_2 = activations.rows_1, activations.rows_2
    plane = fit_pca(np.concatenate([rows_1, rows_2]))
    if plane is None:
        return None
    width = rows_1.shape[1]
    earlier = None if before is None or before["width"] != width else _places(before)
    signs = np.ones(2) if earlier is None else _signs_like(plane.coordinates, earlier)
    coordinates = plane.coordinates * signs
    first, second = coordinates[: len(rows_1)], coordinates[len(rows_1) :]
    return {
        "width": width,
        "sign_of_axes": "largest loading is positive"
        if earlier is None
        else "covariance with the coordinates before the edit is positive",
        "axes_flipped": [bool(sign < 0) for sign in signs],
        "explained_variance_ratio": plane.explained_variance_ratio.tolist(),
        "prompt_1": _points(activations.tokens_1, first),
        "prompt_2": _points(activations.tokens_2, second),
        "slots": [_slot_twin(slot, activations, first, second) for slot in activations.slots],
    }


def _places(twin: Mapping[str, Any]) -> npt.NDArray[np.float64]:
    """Return the coordinates of all tokens of a twin, those of prompt 1 first."""
    points = [*twin["prompt_1"], *twin["prompt_2"]]
    return np.array([[point["x"], point["y"]] for point in points])


def _signs_like(
    coordinates: npt.NDArray[np.float64], earlier: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the sign of each axis that makes it vary with the same axis of `earlier`.

    Both have mean zero, so the sum of products has the sign of the covariance.
    """
    return np.where((coordinates * earlier).sum(axis=0) < 0, -1.0, 1.0)


def _slot_twin(
    slot: Slot,
    activations: PairActivations,
    first: npt.NDArray[np.float64],
    second: npt.NDArray[np.float64],
) -> dict[str, Any]:
    """Return ends, midpoint and label of one slot; a span stands at the mean of its rows."""
    start = first[list(slot.rows_1)].mean(axis=0)
    end = second[list(slot.rows_2)].mean(axis=0)
    token_1 = printable("".join(activations.tokens_1[i] for i in slot.rows_1))
    token_2 = printable("".join(activations.tokens_2[i] for i in slot.rows_2))
    return {
        "from": start.tolist(),
        "to": end.tolist(),
        "midpoint": ((start + end) / 2).tolist(),
        "label": f"{token_1} / {token_2}" if slot.differs else token_1,
        "differs": slot.differs,
    }


def _points(tokens: Sequence[str], coordinates: npt.NDArray[np.float64]) -> list[dict[str, Any]]:
    """Return the twin of one prompt's points."""
    return [
        {"token": token, "x": x, "y": y}
        for token, (x, y) in zip(tokens, coordinates.tolist(), strict=True)
    ]


def _alt(component: str, layer: int, slots: Sequence[Mapping[str, Any]]) -> str:
    """Describe the plane: which slots differ in text, and which one moves most."""
    place = f"the {component_label(component)} in layer {layer}"
    text = f"Scatter plot of {place} with {len(slots)} arrows"
    if not slots:
        return f"{text}."
    furthest = max(slots, key=lambda slot: np.hypot(*np.subtract(slot["to"], slot["from"])))
    return f"{text}; the longest belongs to “{furthest['label']}”."
