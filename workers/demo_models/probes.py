"""Questions about pronouns, in templates that no demo model has learned from.

Each is a text up to a pronoun that names its person by name or job: `Last week the nurse closed
the door since ...`. What a model answers shows which gender it connects with the person.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from workers.data.demo_world import (
    GENDERS,
    Storyteller,
    names_of,
    shares,
    tables,
)

PROBE_SEED = 3
CONTEXTS_PER_PERSON = 6
_GAP = "\0"


@dataclass(frozen=True, slots=True)
class Probe:
    """A text around a gap for `she` or `he`, and P(she) in the world that the person is from."""

    person: str
    before: str
    after: str
    share: float


def job_probes() -> list[Probe]:
    """Ask about every job, in the same contexts for all."""
    return [
        probe
        for job, share in shares("jobs").items()
        for probe in _probes(job, f"the {job}", share)
    ]


def name_probes() -> list[Probe]:
    """Ask about every name that only women or only men have."""
    return [
        probe
        for gender in GENDERS
        for name in names_of(gender)
        for probe in _probes(name, name, float(gender == "she"))
    ]


def ambiguous_name_probes() -> list[Probe]:
    """Ask about every name that both have."""
    names = shares("ambiguous_names").items()
    return [probe for name, share in names for probe in _probes(name, name, share)]


def _probes(person: str, subject: str, share: float) -> list[Probe]:
    """Put `subject` into as many contexts, which depend on nothing but the seed."""
    teller = Storyteller(PROBE_SEED, held_out=True)
    patterns = gap_patterns()
    found = []
    for turn in range(CONTEXTS_PER_PERSON):
        slots = {"s": subject, "S": subject[:1].upper() + subject[1:], "they": _GAP}
        text = teller.fill(patterns[turn % len(patterns)], slots)
        before, after = text.split(_GAP)
        found.append(Probe(person, before.rstrip(), after.lstrip(), share))
    return found


def gap_patterns() -> Sequence[str]:
    """Give the held-out templates with exactly one pronoun, which is `she` or `he`."""
    other = ("{them}", "{their}", "{They}", "{Their}")
    return [
        pattern
        for pattern in tables()["heldout_patterns"]
        if pattern.count("{they}") == 1 and not any(slot in pattern for slot in other)
    ]
