"""The facts of one load run, as text for people."""

from collections.abc import Iterator

from bench.documents import replace_section
from bench.load.requests import POST, Timing
from bench.load.run import SLOTS, LoadRun


def as_markdown(run: LoadRun) -> str:
    """Write the tables of a run."""
    return "\n".join([*_head(run), *_requests(run), *_service(run), *_missed(run)])


def write_report(run: LoadRun) -> None:
    """Put the tables of a run in the place of the last ones of its database."""
    replace_section("load.md", run.database, as_markdown(run))


def _head(run: LoadRun) -> Iterator[str]:
    size, heard = run.size, run.heard
    yield f"## {run.database.capitalize()}"
    yield ""
    yield f"`{run.command}`"
    yield ""
    yield (
        f"{run.machine}; {run.pace.share:.1%} of the time at less than a third of its usual speed. "
        f"{size.jobs} queued jobs; under load {size.streams} event streams and "
        f"{size.waits} waiting requests, which saw {heard.events} events, {heard.answers} answers "
        f"and {heard.failures} failures."
    )
    yield ""


def _requests(run: LoadRun) -> Iterator[str]:
    yield (
        "| Request | CPU of the API | At rest, p50 / p99 | Under load, p50 / p99 "
        "| p99 without the machine's slow moments: at rest / under load | Answer |"
    )
    yield "|---|---|---|---|---|---|"
    rest = {timing.name: timing for timing in run.rest.reads}
    rest[run.load.post.name] = run.rest.post
    for timing in (*run.load.reads, run.load.post):
        before = rest[timing.name]
        cpu_ms = run.rest.cpu_ms[POST if timing is run.load.post else timing.name]
        calm = [one.percentile_ms(0.99, run.pace) for one in (before, timing)]
        yield (
            f"| {_label(timing.name)} | {cpu_ms:.1f} ms | {_cell(before)} | {_cell(timing)} "
            f"| {calm[0]:.0f} / {calm[1]:.0f} ms | {timing.bytes / 1024:.1f} KiB |"
        )
    yield ""


def _service(run: LoadRun) -> Iterator[str]:
    moments = (run.rest.moment, run.load.moment, run.end)
    yield "| | Backlog only | With streams | At the end |"
    yield "|---|---|---|---|"
    yield _row("memory of the API", [f"{moment.rss_mib:.0f} MiB" for moment in moments])
    yield _row("database connections", [str(moment.connections) for moment in moments])
    yield _row(
        "transactions a second",
        [
            "not counted" if moment.transactions_per_s is None
            else f"{moment.transactions_per_s:.1f}"
            for moment in moments
        ],
    )  # fmt: skip
    yield _row("cores used by the API", [f"{moment.api_cores:.2f}" for moment in moments])
    yield _row("load average", [f"{moment.load_1m:.1f}" for moment in moments])
    yield ""
    yield (
        f"Drain with {SLOTS} worker slots whose jobs take no time: "
        f"{run.drained_per_s:.0f} jobs a second dispatched, claimed and ended."
    )
    yield ""


def _missed(run: LoadRun) -> Iterator[str]:
    for text in run.missed:
        yield f"- missed: {text}"
    if run.missed:
        yield ""


def _label(name: str) -> str:
    request, comma, condition = name.partition(", ")
    return f"`{request}`{comma}{condition}"


def _cell(timing: Timing) -> str:
    failed = f", {timing.failures} FAILED" if timing.failures else ""
    return f"{timing.percentile_ms(0.5):.0f} / {timing.percentile_ms(0.99):.0f} ms{failed}"


def _row(name: str, cells: list[str]) -> str:
    return f"| {name} | {' | '.join(cells)} |"
