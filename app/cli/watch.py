"""Show a job while it runs, and what came of it."""

from collections import Counter
from typing import Any, Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from debias_client import Client
from debias_client.schemas import Job, JobEvent, SummaryRow

NUMERIC = frozenset({"n", "before", "after", "change"})
IMPROVED, WORSE = "improved", "got worse"
COLOURS = {IMPROVED: "green", WORSE: "red"}
PHASES = (
    "preparing",
    "evaluating_before",
    "debiasing",
    "evaluating_after",
    "packaging",
    "uploading",
)


def watch_job(client: Client, job_id: str, console: Console) -> Job:
    """Follow a job's events until it ends; return the ended job."""
    columns = (
        TextColumn("{task.description:<18}"),
        BarColumn(bar_width=30),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[eta]:<12}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[message]}", style="dim"),
    )
    with Progress(*columns, console=console) as bars:
        view = PhaseBars(bars, console)
        for event in client.jobs.stream_events(job_id):
            view.show(event)
    return client.jobs.get(job_id)


class PhaseBars:
    """One progress bar per phase on a terminal; plain lines elsewhere."""

    def __init__(self, bars: Progress, console: Console) -> None:
        self._bars = bars
        self._console = console
        self._task: Any = None
        self._phase: str | None = None
        self._shown = -1

    def show(self, event: JobEvent) -> None:
        """Update the display for one event."""
        kind, data = event["type"], event["data"]
        if kind == "job.phase":
            self._enter(str(data["phase"]))
        elif kind == "job.progress":
            self._advance(data)
        elif kind == "job.warning":
            self._console.print(f"[yellow]warning[/yellow] {data.get('message', '')}")
        elif kind in ("job.retry_scheduled", "job.cancelling", "job.paused", "job.resumed"):
            self._console.print(f"{kind.removeprefix('job.')}: {data}")
        elif kind in ("job.succeeded", "job.failed", "job.cancelled"):
            self._finish()

    def _enter(self, phase: str) -> None:
        self._finish()
        self._phase, self._shown = phase, -1
        number = PHASES.index(phase) + 1 if phase in PHASES else 0
        label = f"{number}/{len(PHASES)} {phase.replace('_', ' ')}"
        if self._console.is_terminal:
            self._task = self._bars.add_task(label, total=1.0, eta="", message="")
        else:
            self._console.print(label)

    def _advance(self, data: dict[str, Any]) -> None:
        fraction = data.get("fraction")
        if fraction is None:
            return
        eta = "" if data.get("eta_s") is None else f"{data['eta_s']:.0f} s left"
        message = data.get("message") or ""
        if self._task is not None:
            self._bars.update(self._task, completed=fraction, eta=eta, message=message)
        elif int(fraction * 4) > self._shown:
            self._shown = int(fraction * 4)
            self._console.print(f"    {fraction:4.0%} {eta} {message}".rstrip())

    def _finish(self) -> None:
        if self._task is not None:
            self._bars.update(self._task, completed=1.0, eta="", message="")
            self._task = None


def show_result(job: Job, console: Console) -> None:
    """Print the before/after table of an ended job, or its error with the hint."""
    error, result = job["error"], job["result"]
    if error is not None:
        console.print(f"\n[red]{job['status']}[/red] {error['code']}: {error['message']}")
        console.print(error["hint"] or "")
    if result is None or not result["summary"]:
        return
    main_metric = result["summary"][0]["metric"]
    rows = [row for row in result["summary"] if row["metric"] == main_metric]
    console.print()
    console.print(summary_table(main_metric, rows))
    counts = Counter(finding(row) for row in result["summary"])
    found = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    console.print(f"All {len(result['summary'])} rows of the report: {found}.", highlight=False)
    for warning in result["warnings"]:
        text = warning["message"] if isinstance(warning, dict) else warning
        console.print(f"[yellow]note[/yellow] {text}", highlight=False)


def summary_table(metric: str, rows: list[SummaryRow]) -> Table:
    """Lay one metric out as one line per group; without an edited model there is one value."""
    if all(row["after"] is None for row in rows):
        return measured_table(metric, rows)
    title = f"{metric}, before and after (paired, 95 % intervals)"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for heading in ("group", "n", "before", "after", "change", "finding"):
        justify: Literal["left", "right"] = "right" if heading in NUMERIC else "left"
        table.add_column(heading, justify=justify, no_wrap=True)
    for row in rows:
        table.add_row(*result_cells(row))
    return table


def measured_table(metric: str, rows: list[SummaryRow]) -> Table:
    """Lay out one metric of a model that was measured and not changed."""
    title = f"{metric}, measured only (95 % intervals)"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    table.add_column("group", no_wrap=True)
    for heading in ("n", "mean", "interval"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        interval = row["ci95_before"]
        ends = "-" if interval is None else " to ".join(map(number, interval))
        table.add_row(row["group"] or "all", str(row["n"]), number(row["before"]), ends)
    return table


def result_cells(row: SummaryRow) -> tuple[str, ...]:
    """Write one summary row as table cells."""
    words = finding(row)
    colour = COLOURS.get(words)
    return (
        row["group"] or "all",
        str(row["n"]),
        number(row["before"]),
        number(row["after"]),
        change(row["delta"], row["ci95_delta"]),
        f"[{colour}]{words}[/{colour}]" if colour else words,
    )


def finding(row: SummaryRow) -> str:
    """Say what the paired interval says."""
    if row["after"] is None:
        return "measured"
    if row["improved"] is not None:
        return IMPROVED if row["improved"] else WORSE
    # Neutral control pairs have no ideal, and so no better or worse.
    return "not judged" if row["ideal"] is None else "no reliable change"


def number(value: float | None) -> str:
    """Write a value with four significant digits."""
    return "-" if value is None else f"{value:.4g}"


def change(delta: float | None, interval: list[float] | None) -> str:
    """Write a difference with its sign and its interval."""
    if delta is None:
        return "-"
    if interval is None:
        return f"{delta:+.3g}"
    return f"{delta:+.3g} ({interval[0]:+.3g} to {interval[1]:+.3g})"
