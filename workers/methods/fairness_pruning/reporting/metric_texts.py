"""Every metric of the method in plain sentences: what it is, which way is better, the result."""

from collections.abc import Iterator, Mapping
from typing import Any

from app.catalog.methods.fairness_pruning import METHOD
from workers.evaluation.bootstrap import MIN_UNITS_FOR_CLAIM
from workers.methods.fairness_pruning.measuring.metrics import (
    ATTENTION,
    METRICS,
    MLP,
    PARITY,
    RELATIVE,
)
from workers.methods.fairness_pruning.measuring.pair_plan import SPLIT_LABELS, SPLITS
from workers.methods.fairness_pruning.reporting.components import parity_components
from workers.methods.fairness_pruning.reporting.evidence import Evidence
from workers.methods.fairness_pruning.reporting.headline import (
    judged_split,
    ratio_pairs,
    split_row,
)
from workers.methods.fairness_pruning.reporting.intervals import ratio_intervals
from workers.methods.fairness_pruning.reporting.language import costs_language, language_entry
from workers.methods.fairness_pruning.reporting.report import control_ratio
from workers.reports.document import MetricFinding, Statement, Tone
from workers.reports.findings import direction_of, result_of
from workers.reports.forest import forest_name
from workers.reports.picture import signed_alike
from workers.reports.wording import three_digits, too_few

MEANINGS = {
    PARITY: (
        "How far apart the inner values of the model lie for the two prompts of a pair, as a mean "
        "over the places that were recorded in every layer: {components}."
    ),
    MLP: (
        "The same difference, measured only at what the MLP of each layer hands on: the part that "
        "holds the neurons and that this method edits."
    ),
    ATTENTION: (
        "The same difference, measured only at what attention hands on: the part of each layer "
        "that carries information from one word to another."
    ),
    RELATIVE: (
        "The difference as a share of the size of the inner values themselves, so that a model "
        "that has merely become quieter does not look fairer."
    ),
}

_LOSS_VERDICTS: Mapping[Tone, str] = {
    "better": "it got better",
    "worse": "it got worse",
    "neutral": "no reliable change",
}


def metric_findings(evidence: Evidence) -> tuple[MetricFinding, ...]:
    """Explain every metric that was measured, with what was found on each set of pairs."""
    infos = {metric.name: metric for metric in METHOD.metrics}
    findings = [
        MetricFinding(
            metric=name,
            title=infos[name].title,
            meaning=MEANINGS[name].format(components=parity_components(evidence)),
            direction=direction_of(infos[name]),
            results=tuple(_results(evidence, name)),
            figure=forest_name(name),
        )
        for name in METRICS
        if evidence.rows
    ]
    return (*findings, *_perplexity(evidence), *_ratio(evidence))


def _results(evidence: Evidence, metric: str) -> Iterator[Statement]:
    infos = {info.name: info for info in METHOD.metrics}
    first = judged_split(evidence)
    for split in sorted(SPLITS, key=lambda split: split != first):
        row = split_row(evidence, metric, split)
        if row is not None:
            yield result_of(row, infos, where=SPLIT_LABELS[split])


def _perplexity(evidence: Evidence) -> Iterator[MetricFinding]:
    language = language_entry(evidence)
    if language is None:
        return
    perplexity, interval = language["perplexity"], language["ci95_loss_increase"]
    tone = _tone_of_loss(evidence, language)
    verdict = _LOSS_VERDICTS[tone]
    values = f"{perplexity['before']:.4g} before and {perplexity['after']:.4g} after"
    ends = ""
    if language["n"] < MIN_UNITS_FOR_CLAIM:
        ends = f"; {too_few(language['n'], 'pair')}"
    elif interval:
        ends = f"; 95 % interval of the increase of the loss {' to '.join(signed_alike(interval))}"
    yield MetricFinding(
        metric="perplexity",
        title="Perplexity on the prompts",
        meaning=(
            "How surprised the model is by the words of the prompts; 1 would be no surprise at "
            "all. The prompts are few and short, so this shows damage and not ability."
        ),
        direction="Lower is better.",
        results=(
            Statement(
                f"On the prompts of {language['n']} pairs: {verdict}, {values}{ends}.",
                tone,
            ),
        ),
    )


def _tone_of_loss(evidence: Evidence, language: Mapping[str, Any]) -> Tone:
    """Judge the loss by its interval, as every other metric; few pairs allow no verdict."""
    interval = language["ci95_loss_increase"]
    if evidence.nothing_changed:
        return "neutral"
    if costs_language(language):
        return "worse"
    fell = bool(interval and interval[1] < 0 and language["n"] >= MIN_UNITS_FOR_CLAIM)
    return "better" if fell else "neutral"


def _ratio(evidence: Evidence) -> Iterator[MetricFinding]:
    ratio = control_ratio(evidence)
    if ratio["before"] is None or ratio["after"] is None:
        return
    ends = ratio_intervals(evidence)
    demographic, neutral = ratio_pairs(evidence)
    told = (
        f"{_ratio_text(ratio['before'], ends['before'])} before and "
        f"{_ratio_text(ratio['after'], ends['after'])} after, over {demographic} demographic and "
        f"{neutral} neutral pairs"
    )
    yield MetricFinding(
        metric="demographic_to_control_ratio",
        title="Demographic to neutral difference",
        meaning=(
            "The difference that a swapped demographic word makes, divided by the difference that "
            "a swapped neutral word makes; 1 means that the demographic word matters no more."
        ),
        direction=(
            "Above 1, lower is better. An edit that shrinks all differences alike leaves the ratio "
            "as it is."
        ),
        results=(
            Statement(
                f"{told}. Nothing is judged by it: it sets pairs of two kinds beside each other."
            ),
        ),
    )


def _ratio_text(value: float, ends: tuple[float, float] | None) -> str:
    """Give a ratio with its interval, if it has one."""
    text = three_digits(value)
    return text if ends is None else f"{text} (95 % interval {_span(ends)})"


def _span(ends: tuple[float, float]) -> str:
    return " to ".join(map(three_digits, ends))
