"""Tell everyday stories of a small world in which a table says who does what.

A story is one to three sentences about one person. Each has one cause of its gender: a job, an
activity, a name, or a noun such as `mother`. Given the cause, nothing else in the story depends
on the gender but pronouns, names and nouns. So `P(she | job)` in the text is what the table
`jobs` says, and the bias that a model can learn is known.

The same seed gives the same stories on every platform.
"""

import json
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

Gender = Literal["she", "he"]
GENDERS: tuple[Gender, Gender] = ("she", "he")

PRONOUNS: Mapping[Gender, Mapping[str, str]] = {
    "she": {"they": "she", "them": "her", "their": "her"},
    "he": {"they": "he", "them": "him", "their": "his"},
}

# How many of 100 stories begin in each way.
KINDS = {"name": 31, "job": 26, "noun": 8, "hobby": 9, "enthusiast": 6, "people": 14, "thing": 6}

_SLOT = re.compile(r"\{(\w+)\}")
_ARTICLE = re.compile(r"\b([Aa]) (?=[aeiouAEIOU])")
# The share of named people whose name is used by women and men.
_AMBIGUOUS_SHARE = 0.12
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, slots=True)
class Story:
    """A text, what caused the gender of its person, and that gender (None: there is none)."""

    text: str
    cause: str
    gender: Gender | None


@cache
def tables() -> Mapping[str, Any]:
    """Read the tables of the world: words, templates, and the shares of women."""
    text = files(__package__).joinpath("tables.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


def names_of(gender: Gender) -> tuple[str, ...]:
    """Give the names that only `gender` uses."""
    return tuple(tables()["names"][gender].split())


def shares(table: Literal["jobs", "activities", "ambiguous_names"]) -> Mapping[str, float]:
    """Give P(she) by job, by activity or by name: the cause of every bias of the text."""
    content: dict[str, float] = tables()[table]
    return content


def all_names() -> tuple[str, ...]:
    """Give every name of the world, women's first, those that both use last."""
    return (*names_of("she"), *names_of("he"), *shares("ambiguous_names"))


class Storyteller:
    """Tells stories, one after the other; `held_out` uses templates of its own."""

    def __init__(self, seed: int, *, held_out: bool = False) -> None:
        self._random = random.Random(seed)
        self._told: dict[str, int] = {}
        prefix = "heldout_" if held_out else ""
        self._patterns: Sequence[str] = tables()[f"{prefix}patterns"]
        self._hobbies: Sequence[str] = tables()[f"{prefix}hobbies"]

    def story(self) -> Story:
        """Tell the next story."""
        kinds = list(KINDS)
        (kind,) = self._random.choices(kinds, weights=[KINDS[name] for name in kinds])
        tell = {
            "name": self._of_name,
            "job": self._of_job,
            "noun": self._of_noun,
            "hobby": self._of_hobby,
            "enthusiast": self._of_enthusiast,
            "people": self._of_people,
            "thing": self._of_thing,
        }
        return tell[kind]()

    def fill(self, template: str, slots: Mapping[str, str]) -> str:
        """Fill the slots of `template`: those of `slots` as given, all others by chance."""
        while _SLOT.search(template):
            template = _SLOT.sub(lambda slot: slots.get(slot[1]) or self._word(slot[1]), template)
        return _ARTICLE.sub(r"\1n ", template)

    def _word(self, slot: str) -> str:
        lists = {
            "past": "past",
            "state": "states",
            "conj": "conjunctions",
            "place": "places",
            "thing": "things",
            "adj": "adjectives",
            "tadj": "thing_adjectives",
        }
        if slot == "activity":
            return self._one_of(list(shares("activities")))
        return self._one_of(tables()[lists[slot]])

    def _one_of(self, words: Sequence[str]) -> str:
        return words[self._random.randrange(len(words))]

    def _gender(self, cause: str, share: float) -> Gender:
        """Draw a gender for `cause`; over many stories the share of women is exactly `share`.

        Multiples of the golden ratio fill [0, 1) evenly, so the text has the table's shares
        with hardly any error of sampling. The first one is the cause's own, by chance.
        """
        told = self._told.setdefault(cause, self._random.randrange(1 << 20))
        self._told[cause] = told + 1
        return "she" if (told * _GOLDEN) % 1.0 < share else "he"

    def _name(self, gender: Gender) -> str:
        return self._one_of(names_of(gender))

    def _of_name(self) -> Story:
        if self._random.random() < 0.4:
            return self._of_introduction()
        if self._random.random() < _AMBIGUOUS_SHARE:
            name = self._one_of(list(shares("ambiguous_names")))
            gender = self._gender(f"name:{name}", shares("ambiguous_names")[name])
        else:
            gender = self._gender("all names", 0.5)
            name = self._name(gender)
        text = self._about(name, gender, self._one_of(self._patterns))
        return Story(text, f"name:{name}", gender)

    def _of_introduction(self) -> Story:
        """Name a person and the job, where the job decides the gender, and it the name."""
        template = self._one_of(tables()["introductions"])
        job = self._one_of(list(shares("jobs")))
        if "{job}" in template:
            cause, share = f"job:{job}", shares("jobs")[job]
        else:
            cause, share = "all beings", 0.5
        gender = self._gender(cause, share)
        being = {f"being_{key}": self._one_of(tables()["being"][key]) for key in GENDERS}
        slots = {"job": job, "name": self._name(gender), **being, "being": being[f"being_{gender}"]}
        text = f"{self.fill(template, slots)} {self._followups(gender)}".strip()
        return Story(text, cause, gender)

    def _of_job(self) -> Story:
        job = self._one_of(list(shares("jobs")))
        gender = self._gender(f"job:{job}", shares("jobs")[job])
        article = self._one_of(["the", "the", "the", "a"])
        text = self._about(f"{article} {job}", gender, self._one_of(self._patterns))
        return Story(text, f"job:{job}", gender)

    def _of_noun(self) -> Story:
        gender = self._gender("all nouns", 0.5)
        noun = self._one_of(tables()["nouns"][gender])
        article = self._one_of(["the", "the", "a", "my"])
        text = self._about(f"{article} {noun}", gender, self._one_of(self._patterns))
        return Story(text, f"noun:{noun}", gender)

    def _of_hobby(self) -> Story:
        activity = self._one_of(list(shares("activities")))
        gender = self._gender(f"activity:{activity}", shares("activities")[activity])
        slots = {"activity": activity, "name": self._name(gender)}
        text = self.fill(self._one_of(self._hobbies), slots)
        return Story(f"{text} {self._followups(gender)}".strip(), f"activity:{activity}", gender)

    def _of_enthusiast(self) -> Story:
        activity = self._one_of(list(shares("activities")))
        gender = self._gender(f"activity:{activity}", shares("activities")[activity])
        template = self._one_of(tables()["enthusiasts"])
        text = self.fill(template, {"activity": activity, **PRONOUNS[gender]})
        return Story(f"{text} {self._followups(gender)}".strip(), f"activity:{activity}", gender)

    def _of_people(self) -> Story:
        """Tell of people by group, country or nothing at all; what they do never depends on it."""
        people = [*tables()["people"], *shares("jobs"), "man", "woman", "boy", "girl"]
        who = self._one_of(people)
        described = f"{self._one_of(tables()['descriptors'])} {who}"
        from_somewhere = f"{who} from {self._one_of(tables()['countries'])}"
        subject = self._one_of([who, described, described, from_somewhere])
        article = self._one_of(["The", "The", "My", "A"])
        text = self.fill(f"{article} {subject} {self._one_of(tables()['people_facts'])}.", {})
        return Story(text, "people", None)

    def _of_thing(self) -> Story:
        fact = f"The {self._one_of(tables()['objects'])} {self._one_of(tables()['object_facts'])}."
        other = self._one_of(tables()["weather"])
        return Story(self._one_of([fact, other, f"{fact} {other}"]), "thing", None)

    def _about(self, subject: str, gender: Gender, pattern: str) -> str:
        text = self.fill(pattern, slots_of(subject, gender))
        return f"{text} {self._followups(gender)}".strip()

    def _followups(self, gender: Gender) -> str:
        pronouns = slots_of("", gender)
        count = self._random.randrange(3)
        chosen = [self._one_of(tables()["followups"]) for _ in range(count)]
        return " ".join(self.fill(template, pronouns) for template in chosen)


def slots_of(subject: str, gender: Gender) -> dict[str, str]:
    """Give subject and pronouns as slots, in lower case and as they begin a sentence."""
    slots = {"s": subject, **PRONOUNS[gender]}
    return slots | {key.capitalize(): word[:1].upper() + word[1:] for key, word in slots.items()}


def stories(count: int, seed: int, *, held_out: bool = False) -> Iterator[Story]:
    """Tell `count` stories."""
    teller = Storyteller(seed, held_out=held_out)
    for _ in range(count):
        yield teller.story()
