"""How to read each kind of picture, in one sentence, and which pictures belong together.

The kind is the beginning of a picture's name. So every method that draws one of them gets the
same words, and a new kind needs one line here.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from workers.reports.picture import Picture

_AFTER = "_after"


@dataclass(frozen=True, slots=True)
class _Kind:
    prefix: str
    group: str
    caption: str
    # Instead of `caption` where the job changed nothing and there is one model to see.
    caption_alone: str = ""


_OTHER = _Kind("", "Other pictures", "")
_KINDS = (
    _Kind(
        "forest",
        "Each metric, group by group",
        "Each line is one group of pairs: the open dot is the base model, the filled one the "
        "edited model, the bars are 95 % intervals; only a change whose interval excludes zero "
        "is coloured, blue for better and orange for worse. Pairs with a neutral word are not "
        "judged: their value after the edit is a hollow diamond.",
    ),
    _Kind(
        "measured",
        "How far apart the prompts lie",
        "Each line is one group of pairs: the dot is the mean over its pairs, the bar the 95 % "
        "interval of that mean; further right means that the swapped word matters more.",
    ),
    _Kind(
        "before_after",
        "Each metric in bars",
        "Grey is the base model, blue the edited model, the thin line is the 95 % interval; a "
        "lower bar means that the swapped word matters less.",
    ),
    _Kind(
        "controls",
        "Controls",
        "Dots further right mean a larger reduction; the selection says something only where its "
        "dot lies to the right of all others.",
    ),
    _Kind(
        "amplification",
        "How the difference changes with depth",
        "From left to right the text passes through the layers of the model; a rising line means "
        "that the two prompts are treated more and more differently, a falling one the opposite.",
    ),
    _Kind(
        "mean_diff",
        "Difference by layer",
        "One pair of bars a layer, base model and edited model; lower means that the two prompts "
        "of a pair are treated more alike there.",
        "One bar a layer; lower means that the two prompts of a pair are treated more alike there.",
    ),
    _Kind(
        "layer_neuron",
        "Which outputs move, layer by layer",
        "Each row is a layer, each column a group of neighbouring positions in its output; orange "
        "is higher for the second prompt, blue lower, pale the same for both.",
    ),
    _Kind(
        "heatmap",
        "Which words are treated differently",
        "Each row is a token of the prompts, each column a group of neighbouring positions in the "
        "layer's output; the darker the colour, the more the two prompts differ there. "
        "A changed token is written as that of prompt 1 / that of prompt 2.",
    ),
    _Kind(
        "neuron_map",
        "Neurons shared by the categories",
        "Each mark is one of the neurons that react most to a category; marks of several "
        "categories in one place are neurons that react to all of them.",
    ),
    _Kind(
        "pca",
        "The two prompts on a plane",
        "Each arrow leads from a token of prompt 1 to its counterpart in prompt 2; long arrows are "
        "tokens that the model sees differently. The swapped word is red, and its label reads in "
        "the direction of the arrow: prompt 1 / prompt 2.",
    ),
)


@dataclass(frozen=True, slots=True)
class FigureGroup:
    """Pictures of one kind, in rows; `caption` says how to read them.

    A row holds two pictures that belong together, as before and after the edit, or one.
    """

    title: str
    caption: str
    pictures: tuple[tuple[Picture, ...], ...]

    @property
    def count(self) -> int:
        """Number of pictures."""
        return sum(map(len, self.pictures))


def caption_of(name: str) -> str:
    """Say how to read the picture `name`; nothing for an unknown kind."""
    return _kind_of(name).caption


def figure_groups(pictures: Sequence[Picture]) -> tuple[FigureGroup, ...]:
    """Group pictures by kind in a fixed order, layers in theirs, before and after in one row."""
    kinds = [*_KINDS, _OTHER]
    found = {kind: [p for p in pictures if _kind_of(p.name) is kind] for kind in kinds}
    return tuple(
        FigureGroup(kind.group, _caption(kind, members), _in_rows(members))
        for kind, members in found.items()
        if members
    )


def _caption(kind: _Kind, members: Sequence[Picture]) -> str:
    is_alone = all(picture.data.get("after") is None for picture in members)
    return kind.caption_alone if kind.caption_alone and is_alone else kind.caption


def _kind_of(name: str) -> _Kind:
    return next((kind for kind in _KINDS if name.startswith(kind.prefix)), _OTHER)


def _in_rows(pictures: Iterable[Picture]) -> tuple[tuple[Picture, ...], ...]:
    rows: dict[str, list[Picture]] = {}
    ordered = sorted(pictures, key=lambda picture: _natural_order(picture.name))
    for picture in ordered:
        rows.setdefault(picture.name.removesuffix(_AFTER), []).append(picture)
    if len(rows) == len(ordered) > 1:
        return tuple(tuple(ordered[start : start + 2]) for start in range(0, len(ordered), 2))
    return tuple(map(tuple, rows.values()))


def _natural_order(name: str) -> tuple[tuple[int, str], ...]:
    """Put layer 2 before layer 10, and before the edit before after it."""
    parts = re.findall(r"\d+|\D+", name)
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in parts)
