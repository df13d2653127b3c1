"""Parts of the page on one question each: what kind of change, where, and at what cost."""

from collections.abc import Sequence
from typing import Any

from workers.methods.fairness_pruning.measuring.metrics import PARITY, percent_reduction
from workers.methods.fairness_pruning.measuring.pair_plan import SPLIT_LABELS, SPLITS
from workers.methods.fairness_pruning.reporting.evidence import Evidence
from workers.methods.fairness_pruning.reporting.language import language_entry
from workers.methods.fairness_pruning.reporting.neuron_sections import neuron_sections
from workers.methods.fairness_pruning.reporting.report import amplification_entry
from workers.methods.fairness_pruning.run_controls import SELECTION
from workers.methods.fairness_pruning.selecting.controls import IMPORTANCE_ONLY
from workers.reports.document import Cell, Section, Table
from workers.reports.wording import above_resolution, counted, one_sentence

CONTROL_LABELS = {SELECTION: "this selection", IMPORTANCE_ONLY: "least important only"}
GROWTH_NOTE = (
    "Text passes through the layers of the model one after the other. These numbers say from "
    "which layer on the two prompts of a pair are treated differently, as a share of the size of "
    "the values there."
)
_STAGES = {"before": "Before the edit", "after": "After the edit"}
_MAX_TABLE_PAIRS = 200
_PAIR_NOTE = "Brackets hold the words that were swapped; a reduction is positive, a rise negative."


_OF_NEURONS = (
    "The neurons that go were chosen because they differ strongly. A mean over those that are left "
    "is smaller by that alone, as the mean height of a class falls when the tallest leave. This is "
    "the mechanical part.",
    "The behavioural part is what the other neurons do differently after the edit. Only this "
    "part can say that the model itself has changed its reaction. Positive numbers are reductions, "
    "negative ones are increases.",
)
_OF_SCALED = (
    "The neurons that were weakened were chosen because they differ strongly. A mean over the "
    "others alone is smaller by that, as the mean height of a class is without the tallest. This "
    "is the mechanical part.",
    *_OF_NEURONS[1:],
)
_OF_HEADS = (
    "Where neurons go, the mean over those that are left is smaller by that alone: the mechanical "
    "part. This job took out attention heads and no neurons. The same values are in the mean "
    "before and after, so this part is zero.",
    "All of the change is behavioural: what the model computes differently after the edit. "
    "Positive numbers are reductions, negative ones are increases.",
)


def page_sections(evidence: Evidence, pictures: Sequence[str]) -> tuple[Section, ...]:
    """Give the parts that this job has something to say on; `pictures` are those drawn."""
    found = (_parts_of_the_change(evidence), _language(evidence), _growth(evidence))
    told = (section for section in found if section is not None)
    return (*told, *neuron_sections(evidence, pictures))


def subtitle_pairs(evidence: Evidence) -> str:
    """Count the pairs of each kind, after a semicolon; nothing without pairs."""
    counts = [
        counted(len(evidence.plan.columns(split)), SPLIT_LABELS[split].removesuffix("s"))
        for split in SPLITS
        if evidence.plan.columns(split)
    ]
    return f"; {', '.join(counts)}" if counts else ""


def control_label(name: str) -> str:
    """Name a control for readers."""
    return CONTROL_LABELS.get(name, name.replace("_", " "))


def pair_table(evidence: Evidence) -> Table:
    """List every pair with its values.

    Raises
    ------
    ValueError
        No pair was measured before and after.
    """
    outcome = evidence.outcome
    if outcome is None:
        raise ValueError("no pair was measured before and after")
    before = evidence.metrics_before[PARITY]
    mechanical = outcome.mechanical(before)
    rows: list[tuple[Cell, ...]] = []
    for column, pair in enumerate(evidence.plan.measured[:_MAX_TABLE_PAIRS]):
        first, second = float(before[column]), float(outcome.after[PARITY][column])
        rows.append(
            (
                one_sentence(pair.prompt_1, pair.prompt_2),
                f"{pair.category}, {SPLIT_LABELS[pair.split].removesuffix(' pairs')}",
                first,
                second,
                percent_reduction(first, second),
                above_resolution(float(mechanical[column]), of=first),
                above_resolution(float(outcome.behavioural[column]), of=first),
            )
        )
    shown = "" if len(rows) == len(evidence.plan.measured) else " The rest is in report.json."
    columns = ("Prompts", "Group", "Before", "After", "Reduction %", "Mechanical", "Behavioural")
    return Table(
        title="Pairs",
        columns=columns,
        rows=tuple(rows),
        note=f"Mean activation difference over components, by pair. {_PAIR_NOTE}{shown}",
    )


def _parts_of_the_change(evidence: Evidence) -> Section | None:
    """Separate arithmetic from behaviour."""
    outcome = evidence.outcome
    if outcome is None or evidence.nothing_changed:
        return None
    before = evidence.metrics_before[PARITY]
    mechanical = outcome.mechanical(before)
    rows: list[tuple[Cell, ...]] = []
    for split in SPLITS:
        columns = evidence.plan.columns(split)
        if columns:
            values = (before, outcome.after[PARITY], mechanical, outcome.behavioural)
            raw = [float(value[columns].mean()) for value in values]
            means = (above_resolution(value, of=raw[0]) for value in raw)
            rows.append((SPLIT_LABELS[split], len(columns), *means))
    return Section(
        title="Arithmetic or behaviour",
        text=_arithmetic_words(evidence),
        tables=(
            Table(
                title="How the change comes about",
                columns=("Pairs", "Number", "Before", "After", "Mechanical", "Behavioural"),
                rows=tuple(rows),
                note="Mean activation difference over components, mean over the pairs.",
            ),
        ),
    )


def _arithmetic_words(evidence: Evidence) -> tuple[str, ...]:
    if not evidence.takes_neurons:
        return _OF_HEADS
    return _OF_SCALED if evidence.config.mode == "scale" else _OF_NEURONS


def _growth(evidence: Evidence) -> Section | None:
    """Say where in the depth of the model the difference grows, or that it shrinks."""
    stages = amplification_entry(evidence)
    if stages["before"] is None:
        return None
    text = [
        GROWTH_NOTE,
        *(
            f"{_STAGES[stage]}: {found['sentence']}"
            for stage, found in stages.items()
            if found is not None
        ),
    ]
    text.append("Absolute differences grow with depth in most models; the relative ones count.")
    names = ("amplification", "mean_diff_mlp_output", "mean_diff_attention_output")
    return Section(title="How the difference changes with depth", text=tuple(text), figures=names)


def _language(evidence: Evidence) -> Section | None:
    """Say what the edit costs."""
    language = language_entry(evidence)
    if language is None:
        return None
    return Section(
        title="What the edit costs",
        text=(
            "Every edit can damage what the model knows of language. Perplexity says how "
            "surprised a model is by a text; lower is better. The other lines are controls: "
            f"the same edit of as many {evidence.edited_parts}, chosen in another way.",
        ),
        tables=(_language_table(language),),
    )


def _language_table(language: dict[str, Any]) -> Table:
    labels = {"before": "base model", "after": "edited model"}
    interval = language["ci95_loss_increase"]
    increase = (
        f" Increase of the loss by the edit, 95 % interval: {interval[0]:+.3f} to "
        f"{interval[1]:+.3f}.".replace("-", "\N{MINUS SIGN}")
        if interval
        else ""
    )
    return Table(
        title="Cost to the language",
        columns=("Model", "Loss per token", "Perplexity"),
        rows=tuple(
            (labels.get(name) or control_label(name), loss, language["perplexity"][name])
            for name, loss in language["loss"].items()
        ),
        note=(
            f"On the prompts of {language['n']} pairs, few and short: it shows damage, not "
            f"ability.{increase}"
        ),
    )
