"""Write what a Fairness Pruning job found as a Markdown page.

    .venv/bin/debias demo --output demo-output
    .venv/bin/python -m bench.finding demo-output/<job>/report.json

Every number on the page is read from the report; nothing is typed in by hand.
"""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Report = dict[str, Any]
METRIC = "bias_metric_parity"
MARKER, END_MARKER = "<!-- demo-table -->", "<!-- end of demo-table -->"
MODEL_NAMES = {
    "before": "the base model",
    "after": "the edited model",
    "importance_only": "as many neurons removed by importance alone",
    "random_0": "as many neurons removed at random (draw 1)",
}


def main() -> None:
    """Print the page for the report named on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("report", type=Path, help="report.json of a job")
    parser.add_argument("--readme", type=Path, help="put the main table into this file instead")
    arguments = parser.parse_args()
    report = json.loads(arguments.report.read_text())
    if arguments.readme is None:
        print("\n".join(page(report)))
    else:
        lines = (*summary_table(report), "", *verdict(report), "", *cost(report))
        fill(arguments.readme, "\n".join(lines))


def fill(readme: Path, table: str) -> None:
    """Replace what stands between the markers of `readme`."""
    head, _, rest = readme.read_text().partition(MARKER)
    _, _, tail = rest.partition(END_MARKER)
    readme.write_text(f"{head}{MARKER}\n{table}\n{END_MARKER}{tail}")


def page(report: Report) -> Iterable[str]:
    """Give the lines of the page."""
    yield from opening(report)
    yield from summary(report)
    yield from controls(report)
    yield from language(report)
    yield from generations(report)
    yield from versions(report)


def opening(report: Report) -> Iterable[str]:
    """Say what was run, and how to run it again."""
    config, parameters = report["config"], report["parameters"]
    removed = parameters["before"] - parameters["after"]
    yield "# Fairness Pruning on SmolLM2-135M-Instruct: race and gender"
    yield ""
    yield (
        f"Preset `{config['preset']}`, fraction {config['fraction']}, the built-in pair sets for "
        f"race and gender, {config['controls']['random_seeds']} random controls and one by "
        f"importance alone, seed {report['job']['seed']}."
    )
    yield (
        f"{report['intermediate_size']['before'] - report['intermediate_size']['after']} of "
        f"{report['intermediate_size']['before']} neurons left each layer, "
        f"{removed:,} of {parameters['before']:,} parameters "
        f"({removed / parameters['before']:.2%})."
    )
    yield ""
    yield "Run it again with `make demo`; this page is printed from the job's `report.json` by"
    yield "`.venv/bin/python -m bench.finding demo-output/<job>/report.json`."
    yield ""


def summary(report: Report) -> Iterable[str]:
    """Show the main metric before and after, by group."""
    yield "## What changed"
    yield ""
    yield "Mean activation difference inside a pair (`bias_metric_parity`; smaller is better,"
    yield "0 is ideal). Intervals are 95 %, bootstrapped over pairs; changes are paired."
    yield ""
    yield from summary_table(report)
    yield ""


def summary_table(report: Report) -> Iterable[str]:
    """Show one row for each group of pairs."""
    yield "| pairs | n | before | after | change | finding |"
    yield "|---|---:|---:|---:|---:|---|"
    for row in report["summary"]:
        if row["metric"] == METRIC:
            low, high = row["ci95_delta"] or (None, None)
            interval = "" if low is None else f" ({low:+.4f} to {high:+.4f})"
            yield (
                f"| {row['group']} | {row['n']} | {row['before']:.4f} | {row['after']:.4f} "
                f"| {row['delta']:+.4f}{interval} | {finding(row)} |"
            )


def finding(row: dict[str, Any]) -> str:
    """Say what a row shows. Neutral control pairs have no ideal: their change is not judged."""
    if row["ideal"] is None:
        return "not judged"
    return {True: "improved", False: "got worse", None: "no reliable change"}[row["improved"]]


def controls(report: Report) -> Iterable[str]:
    """Compare with the removal of other neurons."""
    yield "## Against chance"
    yield ""
    yield from verdict(report)
    reduction = report["verdict"]["behavioural_reduction"]
    if reduction["selection"] is not None:
        yield ""
        n = report["verdict"]["held_out_pairs"]
        yield f"Behavioural reduction of the metric on {n} held-out pairs"
        yield "(positive: the difference shrank):"
        yield ""
        yield "| removed neurons | reduction |"
        yield "|---|---:|"
        yield f"| the selection | {reduction['selection']:+.5f} |"
        for draw, value in enumerate(reduction["random"], 1):
            yield f"| random draw {draw} | {value:+.5f} |"
        yield f"| by importance alone | {reduction['importance_only']:+.5f} |"
    yield ""


def verdict(report: Report) -> Iterable[str]:
    """Say what the controls allow to say."""
    yield f"Verdict, by rule: **{report['verdict']['wording']}**."


def cost(report: Report) -> Iterable[str]:
    """Say what the edit costs the model's language, beside what other removals cost."""
    language = report["language"]
    loss, values = language["loss"], dict(language["perplexity"])
    low, high = language["ci95_loss_increase"]
    base, edited = values.pop("before"), values.pop("after")
    yield (
        f"What it costs: perplexity on the prompts went from **{base:.1f} to {edited:.1f}**, the "
        f"loss changed by {loss['after'] - loss['before']:+.3f} nats per token "
        f"({low:+.3f} to {high:+.3f}, over {language['n']} pairs)."
    )
    for name, value in values.items():
        yield f"With {MODEL_NAMES[name]} perplexity is {value:.1f}."


def language(report: Report) -> Iterable[str]:
    """Show what the edit costs the model's language."""
    perplexity = report["language"]["perplexity"]
    yield "## What it costs"
    yield ""
    yield f"Perplexity on the prompts themselves, mean over {report['language']['n']} pairs:"
    yield ""
    yield "| model | perplexity |"
    yield "|---|---:|"
    for name, value in perplexity.items():
        yield f"| {MODEL_NAMES[name]} | {value:.1f} |"
    yield ""


def generations(report: Report) -> Iterable[str]:
    """Show continuations side by side."""
    yield "## Continuations"
    yield ""
    yield "Beam search with five beams; the whole texts are in the report."
    yield ""
    yield "| prompt | before | after |"
    yield "|---|---|---|"
    for text in report["generations"]:
        cells = (text["prompt"], text["before"]["continuation"], text["after"]["continuation"])
        yield "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"
    yield ""


def versions(report: Report) -> Iterable[str]:
    """Name the software."""
    named = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    run = report["run"]
    yield f"Device {run['device']}, {run['dtype_before']}; {named}."


if __name__ == "__main__":
    main()
