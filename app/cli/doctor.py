"""Show what `debias doctor` finds."""

import json
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.services.doctor import Finding, Level, run_checks
from app.settings import Settings

Results = Iterable[tuple[str, list[Finding]]]

_SHOWN = {
    Level.OK: ("ok", "green"),
    Level.WARNING: ("warning", "yellow"),
    Level.PROBLEM: ("problem", "bold red"),
}


def diagnose(settings: Settings, console: Console, *, as_json: bool, timeout_s: float) -> int:
    """Run all checks and show their findings; 1 where any is a problem, else 0."""
    results = run_checks(settings, timeout_s=timeout_s)
    if as_json:
        found = list(results)
        console.print_json(json.dumps(as_document(found)), highlight=False)
    else:
        with console.status("Looking at every part of the service ..."):
            found = list(results)
        show(found, console)
    return int(worst(found) is Level.PROBLEM)


def as_document(results: Results) -> dict[str, object]:
    """Write the findings for programs."""
    results = list(results)
    findings = [
        {"check": name, "level": found.level, "message": found.message, "hint": found.hint}
        for name, found in _flat(results)
    ]
    return {"status": worst(results), "findings": findings}


def worst(results: Results) -> Level:
    """Give the worst level among the findings."""
    order = list(Level)
    return max((found.level for _, found in _flat(results)), key=order.index, default=Level.OK)


def show(results: Results, console: Console) -> None:
    """Print one line for each finding, and below it what to do."""
    results = list(results)
    table = Table.grid(padding=(0, 2))
    for column in range(3):
        table.add_column(no_wrap=column < 2, overflow="fold")
    shown = None
    for name, found in _flat(results):
        word, style = _SHOWN[found.level]
        text = Text(found.message)
        if found.hint:
            text.append(f"\n-> {found.hint}", style="dim")
        table.add_row(Text(word, style=style), name if name != shown else "", text)
        shown = name
    console.print(table)
    console.print(Text(_verdict(results), style=_SHOWN[worst(results)][1]))


def _verdict(results: Results) -> str:
    levels = [found.level for _, found in _flat(results)]
    problems, warnings = levels.count(Level.PROBLEM), levels.count(Level.WARNING)
    if problems:
        return f"\n{problems} problem(s) and {warnings} warning(s). Begin with the first problem."
    return f"\nNo problems, {warnings} warning(s)." if warnings else "\nAll is well."


def _flat(results: Results) -> Iterator[tuple[str, Finding]]:
    for name, findings in results:
        for found in findings:
            yield name, found
