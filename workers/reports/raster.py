"""Pictures of many numbers as coloured cells: bins, colours, and axes at fixed places."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from workers.reports.picture import GRID, INK, MUTED, SMALL_SIZE, TEXT_SIZE, scale_for

MAX_BINS = 128
"""Cells a row: more could not be told apart on a page."""

# Keeps a map of zeros drawable.
SMALLEST_LIMIT = 1e-12
_LIMIT_PERCENTILE = 99
# Digits of the twin: more than any eye sees and than fp32 holds for sure.
_DIGITS = 6

# Both get darker all the way, so they read the same in grey print.
AMOUNT_COLORS = LinearSegmentedColormap.from_list(
    "amount", ["#f4f6f8", "#a9cbe4", "#3b8bc4", "#0b4f85", "#08213d"]
)
# Blue and orange are told apart with any common colour-vision deficiency; blue is the darker one
# in grey print.
SIGN_COLORS = LinearSegmentedColormap.from_list(
    "sign", ["#06234a", "#1e6fb0", "#9cc8e6", "#f7f7f5", "#f7c48b", "#e0801a", "#a84a00"]
)


def bin_width(width: int) -> int:
    """Return how many neighbours share a cell when a row of `width` values is drawn."""
    return -(-width // MAX_BINS)


def binned(values: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.float64]:
    """Average neighbours of the last axis in bins of `bin_width`; the last may be narrower."""
    size = bin_width(values.shape[-1])
    starts = np.arange(0, values.shape[-1], size)
    counts = np.diff([*starts, values.shape[-1]])
    sums = np.add.reduceat(np.asarray(values, dtype=np.float64), starts, axis=-1)
    means: npt.NDArray[np.float64] = sums / counts
    return means


def color_limit(values: Sequence[npt.NDArray[np.floating[Any]]]) -> float:
    """Return the 99th percentile of the absolute values, at least `SMALLEST_LIMIT`.

    A few neurons are far larger than all others; with the maximum as limit the map would be blank
    but for them.
    """
    if not values:
        return SMALLEST_LIMIT
    everything = np.abs(np.concatenate([np.ravel(part) for part in values]))
    return max(float(np.percentile(everything, _LIMIT_PERCENTILE)), SMALLEST_LIMIT)


def short_rows(values: npt.NDArray[np.floating[Any]]) -> list[list[float]]:
    """Return rows of numbers as a twin holds them, with six significant digits."""
    return [[float(f"{value:.{_DIGITS}g}") for value in row] for row in values.tolist()]


@dataclass(frozen=True, slots=True)
class Sheet:
    """A figure whose parts are placed in inches, counted from its top left corner."""

    figure: Figure
    width: float
    height: float

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        """Add axes."""
        return self.figure.add_axes(
            (
                left / self.width,
                1 - (top + height) / self.height,
                width / self.width,
                height / self.height,
            )
        )


def draw_cells(
    axes: Axes,
    rows: Sequence[Sequence[float]],
    *,
    width: int,
    limits: tuple[float, float],
    colors: LinearSegmentedColormap,
) -> None:
    """Draw rows of bins over the positions 0 to `width`; the last bin as narrow as it is."""
    values = np.asarray(rows, dtype=np.float64)
    count, bins = values.shape
    axes.imshow(
        values,
        cmap=colors,
        vmin=limits[0],
        vmax=limits[1],
        aspect="auto",
        interpolation="nearest",
        extent=(0, bins * bin_width(width), count - 0.5, -0.5),
    )
    axes.set_xlim(0, width)
    for side in axes.spines.values():
        side.set_color(GRID)
    axes.tick_params(colors=MUTED, labelsize=SMALL_SIZE, length=0)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))


def draw_color_bar(
    axes: Axes,
    *,
    limits: tuple[float, float],
    colors: LinearSegmentedColormap,
    label: str,
) -> None:
    """Draw the scale of the colours with its label below; values beyond keep the end colour."""
    scale = scale_for(limits)
    low, high = scale.scaled(limits)
    axes.imshow(
        np.linspace(0, 1, 256)[None],
        cmap=colors,
        aspect="auto",
        extent=(low, high, 0, 1),
    )
    axes.set_yticks([])
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
    for side in axes.spines.values():
        side.set_visible(False)
    axes.tick_params(colors=MUTED, labelsize=SMALL_SIZE, length=0)
    axes.set_xlabel(f"{label}{scale.times}", fontsize=TEXT_SIZE, color=INK, parse_math=False)
