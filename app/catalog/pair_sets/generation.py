"""Turn the tables of templates and terms beside this module into pair sets.

Nothing here is random: the same tables give the same pairs in the same order. A template has
one slot, `{form}`, so the two prompts of a pair differ in one contiguous span. A block of a
table says how slots are filled:

* `swaps`: every template of the block with every listed pair of words;
* `passes`: the terms of the set stand in a ring. A pass with `step` s pairs term i with term
  i + s under template i + `shift`, so each term stands first as often as second. Steps below
  half the ring never bring two terms together in both orders. With `every` n only each n-th
  term starts a pair, under the next template each time.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

SLOT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Pair:
    """Two prompts that differ in one span; `category` names the measured attribute."""

    prompt_1: str
    prompt_2: str
    category: str


@dataclass(frozen=True, slots=True)
class PairSet:
    """One built-in set: pairs to select by, pairs held out from that, and harmless swaps."""

    name: str
    version: str
    title: str
    description: str
    pairs: tuple[Pair, ...]
    holdout_pairs: tuple[Pair, ...]
    control_pairs: tuple[Pair, ...]


@cache
def pair_set_names() -> tuple[str, ...]:
    """Give the names of the built-in sets, sorted."""
    tables = (entry.name for entry in files(__package__).iterdir())
    return tuple(sorted(name.removesuffix(".json") for name in tables if name.endswith(".json")))


@cache
def load_pair_set(name: str) -> PairSet:
    """Build the set `name`; raises `KeyError` with the known names when there is none."""
    if name not in pair_set_names():
        raise KeyError(f"no built-in pair set {name!r}; there are {', '.join(pair_set_names())}")
    table = load_table(name)
    return PairSet(
        name=table["name"],
        version=table["version"],
        title=table["title"],
        description=table["description"],
        pairs=_fill_part(table, "selection"),
        holdout_pairs=_fill_part(table, "holdout"),
        control_pairs=_fill_controls(table),
    )


def load_table(name: str) -> dict[str, Any]:
    """Read the table of the set `name`: its terms, templates and the way they combine."""
    table: dict[str, Any] = json.loads(
        files(__package__).joinpath(f"{name}.json").read_text(encoding="utf-8")
    )
    return table


def templates_of(block: dict[str, Any]) -> list[str]:
    """List the templates of a block, situation by situation, in the order of the table."""
    return [text for texts in block["templates"].values() for text in texts]


def _fill_part(table: dict[str, Any], part: str) -> tuple[Pair, ...]:
    pairs: list[Pair] = []
    for block in table[part]:
        fill = _fill_passes(table["terms"], block) if "passes" in block else _fill_swaps(block)
        pairs.extend(Pair(first, second, table["name"]) for first, second in fill)
    return tuple(pairs)


def _fill_swaps(block: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for template in templates_of(block):
        for first, second in block["swaps"]:
            yield fill_slot(template, first), fill_slot(template, second)


def _fill_passes(terms: list[dict[str, str]], block: dict[str, Any]) -> Iterator[tuple[str, str]]:
    templates = templates_of(block)
    for ring in block["passes"]:
        starts = range(0, len(terms), ring.get("every", 1))
        for turn, start in enumerate(starts):
            template = templates[(turn + ring["shift"]) % len(templates)]
            form = slot_of(template)
            other = terms[(start + ring["step"]) % len(terms)]
            yield fill_slot(template, terms[start][form]), fill_slot(template, other[form])


def _fill_controls(table: dict[str, Any]) -> tuple[Pair, ...]:
    """Spread the harmless swaps of each form evenly over the selection templates of that form."""
    templates = [text for block in table["selection"] for text in templates_of(block)]
    pairs: list[Pair] = []
    for form, swaps in table["control"].items():
        fitting = [template for template in templates if slot_of(template) == form]
        for turn, (first, second) in enumerate(swaps):
            template = fitting[turn * len(fitting) // len(swaps)]
            pairs.append(
                Pair(fill_slot(template, first), fill_slot(template, second), table["name"])
            )
    return tuple(pairs)


def slot_of(template: str) -> str:
    """Give the form that the single slot of `template` asks for."""
    (form,) = SLOT.findall(template)
    return str(form)


def fill_slot(template: str, words: str) -> str:
    """Put `words` into the single slot of `template`."""
    return SLOT.sub(lambda _: words, template)
