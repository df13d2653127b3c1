"""The world of the demo models: a grammar of everyday sentences with a known gender bias."""

from workers.data.demo_world.grammar import (
    GENDERS,
    Gender,
    Story,
    Storyteller,
    all_names,
    names_of,
    shares,
    slots_of,
    stories,
    tables,
)

__all__ = [
    "GENDERS",
    "Gender",
    "Story",
    "Storyteller",
    "all_names",
    "names_of",
    "shares",
    "slots_of",
    "stories",
    "tables",
]
