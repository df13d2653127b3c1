"""The facts of one soak, as text for people."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from bench.machine import Machine
from bench.soak.plan import MAX_ATTEMPTS
from bench.soak.samples import MIB, RULE, Growth
from bench.soak.verdict import Verdict

SHOWN_VIOLATIONS = 20


@dataclass(frozen=True, slots=True)
class Left:
    """What the garbage collector and a starting worker took, and what is there after them."""

    collected: str
    rows: Mapping[str, int]
    orphans: tuple[str, ...]
    abandoned: tuple[str, ...]
    scratch: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """One soak: what was asked, what was done, what was found."""

    deployment: str
    command: str
    machine: Machine
    jobs: int
    duration_s: float
    kill_every_s: float
    processes: str
    kills: Mapping[str, int]
    ended_alone: Mapping[str, int]
    requests: Mapping[str, int]
    verdict: Verdict
    growths: tuple[Growth, ...]
    left: Left
    more_broken: tuple[str, ...] = field(default=())

    @property
    def broken(self) -> list[str]:
        """Every promise that was not kept."""
        grown = [
            f"{growth.role} grew: {_growth_cells(growth)}"
            for growth in self.growths
            if growth.judged and not growth.flat
        ]
        scratch = [f"scratch still holds {name}" for name in self.left.scratch]
        return [*self.verdict.broken, *self.more_broken, *grown, *self.left.orphans, *scratch]


def as_markdown(run: Run) -> str:
    """Write the summary of a run."""
    return "\n".join([*_head(run), *_facts(run), *_processes(run), *_rows(run), *_violations(run)])


def _head(run: Run) -> Iterator[str]:
    yield f"## {run.deployment.capitalize()} deployment: {_result(run)}"
    yield ""
    yield f"`{run.command}`"
    yield ""
    yield f"{run.machine}. {run.processes}."
    yield ""


def _result(run: Run) -> str:
    return f"{len(run.broken)} promises broken" if run.broken else "every promise kept"


def _facts(run: Run) -> Iterator[str]:
    verdict, kills = run.verdict, sum(run.kills.values())
    tries = sum(verdict.outcomes.values())
    yield "| | |"
    yield "|---|---|"
    yield f"| jobs sent / ended once | {run.jobs} / {sum(verdict.statuses.values())} |"
    yield f"| ended as | {_counts(verdict.statuses)} |"
    yield f"| attempts, by outcome | {tries}: {_counts(verdict.outcomes)} |"
    spent = f"failed after {MAX_ATTEMPTS} killed attempts, all it may have"
    yield f"| {spent} | {verdict.spent} |"
    same = "results with seed and size of another, and the same SHA-256"
    yield f"| {same} | {verdict.repeated} |"
    yield f"| disturbances, one every {run.kill_every_s:g} s | {kills}: {_counts(run.kills)} |"
    yield f"| processes that ended by themselves | {_counts(run.ended_alone) or 'none'} |"
    yield f"| requests of the clients | {_counts(run.requests)} |"
    yield f"| garbage collection without grace | {run.left.collected} |"
    yield f"| orphans afterwards | {len(run.left.orphans)} |"
    yield f"| scratch folders that the next child would have removed | {len(run.left.abandoned)} |"
    yield f"| folders left in scratch | {len(run.left.scratch)} |"
    per_minute = run.jobs / run.duration_s * 60
    yield f"| duration | {run.duration_s:.0f} s, {per_minute:.0f} jobs a minute |"
    yield ""


def _processes(run: Run) -> Iterator[str]:
    yield "| Role | Processes | Longest life | Memory, first → last quarter | Descriptors | Flat |"
    yield "|---|---|---|---|---|---|"
    for growth in run.growths:
        flat = ("yes" if growth.flat else "NO") if growth.judged else "too short a life"
        yield (
            f"| {growth.role} | {growth.processes} | {growth.life_s:.0f} s | "
            f"{_growth_cells(growth)} | {flat} |"
        )
    yield ""
    yield RULE
    yield ""


def _growth_cells(growth: Growth) -> str:
    first, last = (value / MIB for value in growth.rss_bytes)
    begun, ended = growth.descriptors
    return f"{first:.0f} → {last:.0f} MiB | {begun:.0f} → {ended:.0f}"


def _rows(run: Run) -> Iterator[str]:
    filled = {table: count for table, count in run.left.rows.items() if count}
    yield f"Rows at the end: {_counts(filled)}."
    yield ""


def _violations(run: Run) -> Iterator[str]:
    if not run.broken:
        return
    yield "Broken:"
    yield ""
    yield from (f"- {text}" for text in run.broken[:SHOWN_VIOLATIONS])
    hidden = len(run.broken) - SHOWN_VIOLATIONS
    if hidden > 0:
        yield f"- and {hidden} more"
    yield ""


def _counts(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in ordered)
