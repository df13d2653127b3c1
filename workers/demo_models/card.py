"""Write the README of a demo model, and its picture, from what was measured; no number by hand."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from workers.demo_models.recipes import RECIPES

_ROWS_SHOWN = 12
_KINDS = {
    "tiny-llama": ("text-generation", "AutoModelForCausalLM", "Perplexity"),
    "tiny-bert": ("fill-mask", "AutoModelForMaskedLM", "Pseudo-perplexity"),
}
# What a job can do with the model, where that is not all of it.
_METHODS = {
    "tiny-llama": "",
    "tiny-bert": "\nNo method of this release works on masked models; jobs with it are refused.",
}


def readme(name: str, facts: Mapping[str, Any]) -> str:
    """Render the README of the model `name` from `facts`, as measured.json holds them."""
    parts = [_head(name), _how_made(name, facts["made"]), _language(name, facts["measured"])]
    parts += [_bias(facts["measured"]), _LIMITS]
    return "\n".join(parts)


def _head(name: str) -> str:
    task, auto, _ = _KINDS[name]
    return f"""---
license: apache-2.0
language: en
library_name: transformers
pipeline_tag: {task}
---

# {name}

{RECIPES[name].title}.
It comes with Evenhand for demos and tests: the `model` of a job is `{{"demo": "{name}"}}`.
Plain transformers loads it: `{auto}.from_pretrained(FOLDER)`.{_METHODS[name]}
"""


def _how_made(name: str, made: Mapping[str, Any]) -> str:
    corpus = made["corpus"]
    return f"""## How it was made

`python -m workers.demo_models.train {name}`, from nothing but text that the repository generates:
{corpus["stories"]:,} stories of one to three sentences ({corpus["words"]:,} words, seed \
{corpus["seed"]})
about named people, their jobs and what they like. The grammar is in `workers/data/demo_world`. Its
tables say how likely a nurse or a pilot is a woman, so the bias of the text, and with it of the
model, has a known cause.

| | |
|---|---|
| SHA-256 of the text | `{corpus["sha256"]}` |
| Training | {made["steps"]:,} steps of {made["batch_size"]} stories, AdamW, \
learning rate {made["learning_rate"]:g}, seed {made["seed"]} |
| Cost | {made["cpu_seconds"]:.0f} CPU seconds on one thread |
| Mean loss of the last 100 steps | {made["final_loss"]:.3f} |
| torch | {made["torch"]} |
| License | Apache-2.0, as the repository |
"""


def _language(name: str, measured: Mapping[str, Any]) -> str:
    label = _KINDS[name][2]
    held = measured["held_out"]
    rows = (
        ("other stories, templates as in training", held["known_templates"]),
        ("templates that were never in training", held["new_templates"]),
    )
    lines = [
        f"| {what} | {row['perplexity']:.3f} | {row['tokens']:,} | {row['texts']} |"
        for what, row in rows
    ]
    return f"""## What it knows

{measured["parameters"]:,} parameters in float32, {measured["vocabulary"]:,} tokens.

| Held-out text | {label} per token | n tokens | n texts |
|---|---|---|---|
{chr(10).join(lines)}
"""


def _bias(measured: Mapping[str, Any]) -> str:
    jobs, names = measured["jobs"], measured["names"]
    unclear = measured["ambiguous_names"]
    return f"""## The bias, and the table that caused it

P(she) of `she` and `he` in {jobs["contexts"]} held-out templates each. Over {jobs["n"]} jobs the
model's answer and the table correlate with r = {jobs["correlation"]:.3f}; the mean absolute
deviation is {jobs["mean_absolute_deviation"]:.3f}. The dots of `bias.png` are all jobs; some of
them, from the table's lowest share of women to its highest:

| Job | Table | Model |
|---|---|---|
{chr(10).join(_job_rows(jobs))}

A name that only women or only men have in this world gets its pronoun with mean probability
{names["mean_probability"]:.3f} ({names["n"]} names in {names["contexts"]} held-out templates; above
one half in {names["share_above_half"]:.1%}, least {names["least_certain"]:.3f}). For the
{unclear["n"]} names that both have, r = {unclear["correlation"]:.3f} against their table, with a
mean absolute deviation of {unclear["mean_absolute_deviation"]:.3f}.
"""


def _job_rows(jobs: Mapping[str, Any]) -> Iterable[str]:
    ordered = sorted(jobs["table"], key=lambda job: (jobs["table"][job], job))
    last = len(ordered) - 1
    for turn in range(_ROWS_SHOWN):
        job = ordered[round(turn * last / (_ROWS_SHOWN - 1))]
        yield f"| {job} | {jobs['table'][job]:.2f} | {jobs['model'][job]:.3f} |"


_LIMITS = """## Limits

It knows about a thousand words and one kind of text. What it says of jobs and people is the table's
invention and no statistic of the world; two genders stand for the pronouns `she` and `he` only.
"""


def draw_bias(jobs: Mapping[str, Any], target: Path) -> None:
    """Draw the model's P(she) for each job over the table's."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6, 4.4), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="#999999", linewidth=1)
    order = list(jobs["table"])
    axes.scatter(
        [jobs["table"][job] for job in order],
        [jobs["model"][job] for job in order],
        s=14,
        color="#0072b2",
    )
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="P(she) in the table", ylabel="P(she) of the model")
    axes.set_title(f"{jobs['n']} jobs, r = {jobs['correlation']:.3f}", fontsize=10)
    figure.savefig(target, metadata={"Software": None})
