"""A picture and its JSON twin, and the style that all pictures share.

A drawing function takes the twin and nothing else, so a picture cannot show a number that its
twin lacks. Figures are made with the object interface and the Agg canvas: pyplot keeps figures
alive and is not safe in threads.
"""

import io
import json
import math
import textwrap
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

DPI = 120

# Told apart with any common colour-vision deficiency, and by lightness in grey print; after
# Okabe and Ito, Color Universal Design (2008), toned down. Shape or position says the same.
BEFORE = "#8a94a0"
AFTER = "#0b67a8"
BETTER = "#0b67a8"
WORSE = "#c4520b"
CONTROL = "#b08a2e"
CHANGED = "#c1121f"
INK = "#1d252d"
MUTED = "#5a6672"
GRID = "#e3e7eb"

TITLE_SIZE = 11.0
TEXT_SIZE = 9.0
SMALL_SIZE = 8.0

# Points above the head, and of its leading.
_HEAD_MARGIN = 7.0
_HEAD_LEADING = 1.45

# Smaller numbers are written with a power of ten.
_SMALLEST_PLAIN = 1e-3
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture of a report.

    `data` is its JSON twin: exactly the numbers and texts drawn, finite and plain. `alt` says
    what the picture shows to someone who cannot see it.
    """

    name: str
    title: str
    alt: str
    png: bytes
    data: Mapping[str, Any]

    @property
    def twin(self) -> str:
        """The JSON text of `data`, strict, one sorted entry a line."""
        # Indenting each of a heat map's thousands of numbers would make the file five times as
        # long, and takes the slow way through the encoder.
        entries = [f"{_json(name)}: {_json(self.data[name])}" for name in sorted(self.data)]
        return "{\n" + ",\n".join(entries) + "\n}"


def _json(value: Any) -> str:
    """Return `value` as strict JSON on one line."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)


def make_picture(
    name: str,
    data: Mapping[str, Any],
    draw: Callable[[Mapping[str, Any]], Figure],
    *,
    alt: str,
) -> Picture:
    """Draw `data` with `draw`; the title is `data["title"]`."""
    return Picture(name=name, title=data["title"], alt=alt, png=encode(draw(data)), data=data)


def write_picture(picture: Picture, folder: Path) -> tuple[Path, Path]:
    """Write `<name>.png` and `<name>.json` into `folder` and return both paths."""
    folder.mkdir(parents=True, exist_ok=True)
    image, twin = folder / f"{picture.name}.png", folder / f"{picture.name}.json"
    image.write_bytes(picture.png)
    twin.write_text(picture.twin + "\n", encoding="utf-8")
    return image, twin


def new_figure(width: float, height: float, *, is_placed: bool = False) -> Figure:
    """Return an empty figure of `width` by `height` inches.

    It lays itself out, which takes longer than to draw it; with `is_placed` the caller gives
    every axes its place.
    """
    layout: Literal["constrained"] | None = None if is_placed else "constrained"
    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white", layout=layout)
    FigureCanvasAgg(figure)
    return figure


def encode(figure: Figure) -> bytes:
    """Return the figure as PNG bytes that depend on what is drawn only, and empty it."""
    buffer = io.BytesIO()
    # `savefig` would lay everything out once more before it draws. Without the metadata the file
    # names the version of the drawing library.
    FigureCanvasAgg(figure).print_png(buffer, metadata={"Software": None})
    figure.clear()
    return buffer.getvalue()


def head(figure: Figure, title: str, subtitle: str) -> None:
    """Put a title and a line on what is measured above everything, wrapped to the width."""
    width, height = figure.get_size_inches()
    top = _HEAD_MARGIN
    for line, size, weight, color in _head_lines(title, subtitle, width):
        figure.text(
            8 / (72 * width),
            1 - top / (72 * height),
            line,
            va="top",
            fontsize=size,
            fontweight=weight,
            color=color,
            parse_math=False,
        )
        top += _HEAD_LEADING * size
    engine = figure.get_layout_engine()
    if isinstance(engine, ConstrainedLayoutEngine):
        engine.set(rect=(0, 0, 1, 1 - (top + 3) / (72 * height)))


def head_height(title: str, subtitle: str, width: float) -> float:
    """Return the inches that `head` fills in a figure of `width` inches."""
    sizes = sum(size for _, size, _, _ in _head_lines(title, subtitle, width))
    return (_HEAD_MARGIN + _HEAD_LEADING * sizes + 3) / 72


def _head_lines(title: str, subtitle: str, width: float) -> list[tuple[str, float, str, str]]:
    """Return the lines of a head with size, weight and colour."""
    # Characters an inch, measured at these sizes with a little to spare.
    return [
        *((line, TITLE_SIZE, "bold", INK) for line in textwrap.wrap(title, int(10.8 * width))),
        *(
            (line, TEXT_SIZE, "normal", MUTED)
            for line in textwrap.wrap(subtitle, int(14.2 * width))
        ),
    ]


def legend_below(figure: Figure, handles: Sequence[Line2D], *, columns: int) -> None:
    """Put a legend under the axes."""
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=SMALL_SIZE,
        labelcolor=INK,
    )


def dress(
    axes: Axes, *, x_label: str = "", y_label: str = "", grid_axis: Literal["both", "x", "y"] = "y"
) -> None:
    """Give the axes the common look: no frame, light grid, readable labels."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GRID)
    axes.grid(axis=grid_axis, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=MUTED, labelsize=SMALL_SIZE, length=0)
    axes.set_xlabel(x_label, fontsize=TEXT_SIZE, color=INK, parse_math=False)
    axes.set_ylabel(y_label, fontsize=TEXT_SIZE, color=INK, parse_math=False)


def printable(text: str, limit: int = 24) -> str:
    """Return a token as one short line that the font can draw: rest escaped, long ones cut."""
    glyphs = get_font(findfont("DejaVu Sans"))
    shown = {"\n": "⏎", "\t": "⇥", "\r": "␍"}

    def visible(character: str) -> str:
        character = shown.get(character, character)
        hidden = unicodedata.category(character).startswith("C")
        if hidden or not glyphs.get_char_index(ord(character)):
            return character.encode("unicode_escape").decode()
        return character

    line = "".join(map(visible, text))
    return line if len(line) <= limit else line[: limit - 1] + "…"


@dataclass(frozen=True, slots=True)
class Scale:
    """The power of ten at which some numbers are shown, so that none is a row of zeros.

    `exponent` is a multiple of three; zero means that the numbers are shown as they are.
    """

    exponent: int

    @property
    def times(self) -> str:
        """The text that follows a scaled number, empty where it is shown as it is."""
        if self.exponent == 0:
            return ""
        power = str(self.exponent).translate(_SUPERSCRIPTS)
        return f" \N{MULTIPLICATION SIGN}10{power}"

    def scaled(self, values: Sequence[float]) -> list[float]:
        """Return `values` in units of the power of ten."""
        return [value / 10.0**self.exponent for value in values]


def scale_for(values: Sequence[float]) -> Scale:
    """Return the scale, a multiple of three, at which the largest of `values` is at least 0.001."""
    largest = max((abs(value) for value in values), default=0.0)
    if largest == 0 or largest >= _SMALLEST_PLAIN:
        return Scale(0)
    return Scale(3 * math.floor(math.log10(largest) / 3))


def true_minus(text: str) -> str:
    """Return a number as text with a true minus sign in place of the hyphen."""
    return text.replace("-", "\N{MINUS SIGN}")


def signed_alike(values: Sequence[float]) -> list[str]:
    """Return changes with sign and true minus, all with the decimals that the largest needs.

    The largest shows three significant digits. A change too small to show keeps its sign, so
    that an interval which just excludes zero does not seem to include it.
    """
    decimals = decimals_for(values)
    return [
        f"{value:+.{decimals}f}".replace("-", "\N{MINUS SIGN}") if value else f"{0:.{decimals}f}"
        for value in values
    ]


def decimals_for(values: Sequence[float]) -> int:
    """Return the number of decimals at which the largest of `values` shows three digits."""
    largest = max((abs(value) for value in values), default=0.0)
    if largest == 0:
        return 0
    return min(9, max(0, 2 - math.floor(math.log10(largest))))
