"""The first screen of the report: the verdict in one sentence, and the numbers beside it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workers.evaluation.bootstrap import MIN_UNITS_FOR_CLAIM
from workers.methods.fairness_pruning.measuring.metrics import PARITY
from workers.methods.fairness_pruning.measuring.pair_plan import SPLIT_LABELS, SPLITS, Split
from workers.methods.fairness_pruning.reporting.evidence import Evidence
from workers.methods.fairness_pruning.reporting.intervals import (
    behavioural_intervals,
    ratio_intervals,
)
from workers.methods.fairness_pruning.reporting.language import costs_language, language_entry
from workers.methods.fairness_pruning.reporting.report import control_ratio
from workers.methods.fairness_pruning.run_controls import SELECTION
from workers.methods.fairness_pruning.selecting.controls import (
    BEYOND_CHANCE,
    MIN_HOLDOUT_PAIRS,
    NO_CONTROLS,
    NO_MORE_THAN_IMPORTANCE,
    Verdict,
    worded,
)
from workers.reports.document import HeadlineNumber, Tone, sort_rows
from workers.reports.picture import signed_alike
from workers.reports.wording import DASH, counted, three_digits, too_few
from workers.runtime.context import SummaryRow

_SUBJECT = "The difference inside the model between the two prompts of a pair"
_HELD_OUT = f"{SPLIT_LABELS['holdout']}, which had no part in choosing the neurons"
UNCHANGED = (
    "Nothing was changed: every tensor of the result is that of the base model, byte for byte, so "
    "nothing can have become better or worse."
)


def verdict_sentence(evidence: Evidence) -> str:
    """Say how the metric changed on the judged pairs, and what the controls allow to say."""
    if evidence.nothing_changed:
        return UNCHANGED
    split = judged_split(evidence)
    row = split_row(evidence, PARITY, split)
    if row is None:
        wording = evidence.verdict.wording
        return f"{wording[0].upper()}{wording[1:]}."
    where = _HELD_OUT if split == "holdout" else SPLIT_LABELS[split]
    sentence = change_sentence(row, evidence.verdict.wording, where=where)
    if split == "holdout" and evidence.verdict.selection is not None:
        ends = behavioural_intervals(evidence, split)[SELECTION]
        sentence = f"{sentence} {behavioural_sentence(row, evidence.verdict, ends)}"
    return worded(sentence, evidence.edited_parts)


def change_sentence(row: SummaryRow, wording: str, *, where: str) -> str:
    """Put the change of one parity row and a verdict into a sentence.

    All have one form: what was found, its size, its interval, the number of units. It speaks of a
    rise or a fall only where the row does: where the change is reliable.
    """
    if wording == NO_MORE_THAN_IMPORTANCE:
        # True of a fall and of a rise, and praises neither.
        wording = "removing the least important neurons does at least as well"
    if wording == BEYOND_CHANCE and row.improved is None:
        # The controls compare the neurons that stay, so this holds beside an unreliable whole.
        wording = f"only on what stays in the model, {wording}"
    found = {True: "fell", False: "grew", None: "did not change reliably"}[row.improved]
    if row.n < MIN_UNITS_FOR_CLAIM:
        found = "was compared"
    numbers = "; ".join(_change_numbers(row))
    return f"{_SUBJECT} {found} on {where} ({numbers}): {wording}."


def behavioural_sentence(
    row: SummaryRow, verdict: Verdict, reduction: tuple[float, float] | None
) -> str:
    """Give the part of the change that the controls judge, and its rank among all removals.

    `reduction` is the interval of the mean reduction; it turns into one of the change.
    """
    if verdict.selection is None or not row.before:
        return ""
    ends = () if reduction is None else (-reduction[1], -reduction[0])
    size, *rest = _percents(row.before, [-verdict.selection, *ends])
    interval = f" (95 % interval {' to '.join(rest)})" if rest else ""
    return (
        f"The behavioural part of the change, on which this verdict rests, is {size}{interval}, "
        f"{verdict.rank}."
    )


def _change_numbers(row: SummaryRow) -> Iterator[str]:
    """Give the change in percent of the value before, its interval, and the number of units."""
    change = "" if row.delta is None else f"{_percent_texts(row)[0]}"
    if change:
        yield f"total change {change}"
    if row.n < MIN_UNITS_FOR_CLAIM:
        yield too_few(row.n, row.unit)
        return
    yield from _interval_text(row)
    yield counted(row.n, row.unit)


def _interval_text(row: SummaryRow) -> Iterator[str]:
    """Give the interval of the change; nothing where there is none or too few units."""
    ends = _percent_texts(row)[1:]
    if row.n >= MIN_UNITS_FOR_CLAIM and len(ends) == 2:
        yield f"95 % interval {' to '.join(ends)}"


def _percent_texts(row: SummaryRow) -> list[str]:
    """Give the change and the ends of its interval; empty texts where there is no percentage."""
    if row.delta is None or not row.before:
        return [""]
    return _percents(row.before, [row.delta, *(row.ci95_delta or ())])


def _percents(before: float, changes: Sequence[float]) -> list[str]:
    """Write changes as percentages of `before`, with three significant digits and a true sign."""
    return [f"{text} %" for text in signed_alike([100 * change / before for change in changes])]


def judged_split(evidence: Evidence) -> Split:
    """Say which pairs the verdict speaks of: few held-out ones allow none about themselves."""
    is_enough = len(evidence.plan.columns("holdout")) >= MIN_HOLDOUT_PAIRS
    return "holdout" if is_enough else "selection"


def split_row(evidence: Evidence, metric: str, split: Split) -> SummaryRow | None:
    """Find the row of a metric over all pairs of a split, None without pairs."""
    whole = evidence.plan.columns(split)
    groups = {name for _split, name, columns in evidence.groups if columns == whole}
    rows = (row for row in evidence.rows if row.metric == metric and row.group in groups)
    return next(rows, None)


def overall_tone(evidence: Evidence) -> Tone:
    """Judge all rows and the loss of language together.

    Better only where the controls allow a claim: an edit with a price is mixed at best.
    """
    if evidence.nothing_changed:
        return "neutral"
    ordered = sort_rows([row for row in evidence.rows if "control pairs" not in (row.group or "")])
    language = language_entry(evidence)
    has_price = language is not None and costs_language(language)
    if ordered.worse or has_price:
        return "mixed" if ordered.improved else "worse"
    return "better" if evidence.verdict.claim and ordered.improved else "neutral"


def may_be_called_debiased(evidence: Evidence) -> bool:
    """Whether a model card may tag the model as debiased, which is what people search for.

    Only where the controls allow the claim, and no metric on held-out demographic pairs got
    worse; so never for an unchanged model.
    """
    held_out = {group for split, group, _columns in evidence.groups if split == "holdout"}
    rows = [row for row in evidence.rows if row.group in held_out]
    return evidence.verdict.claim and not any(row.improved is False for row in rows)


def headline_numbers(evidence: Evidence) -> tuple[HeadlineNumber, ...]:
    """Give the numbers of the first screen."""
    state = evidence.edit.state
    before, after = state["parameters_before"], state["parameters_after"]
    fewer = f"{before - after:,} fewer ({three_digits(100 * (before - after) / before)} %)"
    detail = fewer if after != before else "as many as before"
    # The pairs that the verdict speaks of come first.
    splits = sorted(SPLITS, key=lambda split: split != judged_split(evidence))
    rows = {split: split_row(evidence, PARITY, split) for split in splits}
    numbers = [difference_number(row, split) for split, row in rows.items() if row is not None]
    numbers += _side_numbers(evidence)
    numbers.append(HeadlineNumber(label="Parameters", value=f"{after:,}", detail=detail))
    if not evidence.config.controls.enabled:
        numbers.insert(0, HeadlineNumber(label="Controls", value=NO_CONTROLS, tone="worse"))
    return tuple(numbers)


def difference_number(row: SummaryRow, split: Split) -> HeadlineNumber:
    """Make the tile of the change on the pairs of one split."""
    is_reliable = row.improved is not None or row.ideal is None
    is_few = row.n < MIN_UNITS_FOR_CLAIM
    parts = [
        "total change",
        *_interval_text(row),
        too_few(row.n, row.unit) if is_few else f"mean over {counted(row.n, row.unit)}",
        *([] if is_reliable or is_few else ["no reliable change"]),
    ]
    return HeadlineNumber(
        label=f"Difference on {SPLIT_LABELS[split]}",
        value=_percent_texts(row)[0] or DASH,
        detail="; ".join(parts),
    )


def perplexity_number(language: Mapping[str, Any]) -> HeadlineNumber:
    """Make the tile of what the edit costs the language."""
    perplexity, pairs = language["perplexity"], language["n"]
    parts = [f"{three_digits(perplexity['before'])} before", "higher is worse"]
    interval = language["ci95_loss_increase"]
    if interval and pairs >= MIN_UNITS_FOR_CLAIM:
        ends = " to ".join(signed_alike(interval))
        parts.append(f"increase of the loss, 95 % interval {ends}")
    few = pairs < MIN_UNITS_FOR_CLAIM
    parts.append(too_few(pairs, "pair") if few else counted(pairs, "pair"))
    return HeadlineNumber(
        label="Perplexity on the prompts",
        value=three_digits(perplexity["after"]),
        detail="; ".join(parts),
        tone="worse" if costs_language(language) else "neutral",
    )


def ratio_number(
    ratio: Mapping[str, float | None],
    intervals: Mapping[str, tuple[float, float] | None],
    pairs: tuple[int, int],
) -> HeadlineNumber | None:
    """Make the tile of the demographic to neutral ratio; None where it was not measured.

    `pairs` counts the demographic and the neutral pairs.
    """
    before, after = ratio["before"], ratio["after"]
    value = before if after is None else after
    if value is None:
        return None
    ends = intervals["before" if after is None else "after"]
    parts = [] if after is None or before is None else [f"{three_digits(before)} before"]
    if ends is not None:
        parts.append(f"95 % interval {' to '.join(map(three_digits, ends))}")
    parts.append(f"{pairs[0]} demographic and {pairs[1]} neutral pairs")
    if min(pairs) < MIN_UNITS_FOR_CLAIM:
        parts.append("too few for an interval")
    return HeadlineNumber(
        label="Demographic to neutral difference",
        value=three_digits(value),
        detail="; ".join([*parts, "1 means no more than a neutral word"]),
    )


def ratio_pairs(evidence: Evidence) -> tuple[int, int]:
    """Count the pairs behind the demographic to neutral ratio."""
    plan = evidence.plan
    return len(plan.columns("selection")), len(plan.columns("control"))


def _side_numbers(evidence: Evidence) -> Iterator[HeadlineNumber]:
    language = language_entry(evidence)
    if language is not None:
        yield perplexity_number(language)
    ratio = ratio_number(control_ratio(evidence), ratio_intervals(evidence), ratio_pairs(evidence))
    if ratio is not None:
        yield ratio
