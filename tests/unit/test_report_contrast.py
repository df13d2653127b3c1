"""Every text of the page can be read on its background: light, dark and on paper."""

import re
from importlib.resources import files
from itertools import product

import pytest

# WCAG 2.2, success criterion 1.4.3, for text of normal size.
MIN_CONTRAST = 4.5
STYLE = files("workers.reports").joinpath("templates/report.css").read_text(encoding="utf-8")
TONES = ("better", "worse", "neutral", "mixed")
# Which colour of text stands on which background.
PAIRS = [
    *product(("ink", "muted", *TONES), ("page", "paper")),
    *product(("ink",), ("code", *(f"{tone}-soft" for tone in TONES))),
    *((tone, f"{tone}-soft") for tone in TONES),
]


def variables(block):
    found = dict(re.findall(r"--([\w-]+):\s*(#[0-9a-fA-F]{3,6})", block))
    return {name: color if len(color) == 7 else _long(color) for name, color in found.items()}


def _long(color):
    return "#" + "".join(2 * digit for digit in color[1:])


def palettes():
    blocks = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)
    light, dark, paper = (variables(block) for block in blocks)
    return {"light": light, "dark": {**light, **dark}, "paper": {**light, **paper}}


def luminance(color):
    """Relative luminance as WCAG defines it."""
    channels = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first, second):
    lighter, darker = sorted((luminance(first), luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def test_contrast_of_black_on_white_is_that_of_the_definition():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("name", ["light", "dark", "paper"])
@pytest.mark.parametrize(("text", "background"), PAIRS)
def test_text_stands_out_from_its_background(name, text, background):
    palette = palettes()[name]

    assert contrast(palette[text], palette[background]) >= MIN_CONTRAST


def test_marked_words_stand_out_whatever_the_palette():
    rule = re.search(r"^mark \{ background: (#\w{6}); color: (#\w{6});", STYLE, re.MULTILINE)

    assert contrast(rule[1], rule[2]) >= MIN_CONTRAST


def test_text_has_no_color_outside_the_palette():
    # The marked word is the exception: its yellow is the same by day and by night.
    rules = STYLE[STYLE.index("* { box-sizing") :].replace("mark { background: #ffe08a; color", "")
    rules = re.sub(r":root \{.*?\}", "", rules, flags=re.DOTALL)

    assert re.findall(r"(?<![-\w])color: (?!var)[^;]+;", rules) == []
