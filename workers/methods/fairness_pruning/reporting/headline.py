"""The first screen of the report: the verdict in one sentence, and the numbers beside it."""

from collections.abc import Iterator, Mapping
from typing import Any

from workers.methods.fairness_pruning.measuring.metrics import PARITY
from workers.methods.fairness_pruning.measuring.pair_plan import SPLIT_LABELS, SPLITS, Split
from workers.methods.fairness_pruning.reporting.evidence import Evidence
from workers.methods.fairness_pruning.reporting.language import costs_language, language_entry
from workers.methods.fairness_pruning.reporting.report import control_ratio
from workers.methods.fairness_pruning.selecting.controls import (
    BEYOND_CHANCE,
    MIN_HOLDOUT_PAIRS,
    NO_CONTROLS,
    NO_MORE_THAN_IMPORTANCE,
    worded,
)
from workers.reports.document import HeadlineNumber, Tone, sort_rows
from workers.reports.wording import DASH, counted
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
    return worded(sentence, evidence.edited_parts)


def change_sentence(row: SummaryRow, wording: str, *, where: str) -> str:
    """Put the change of one parity row and a verdict into a sentence.

    It speaks of a rise or a fall only where the row does: where the change is reliable.
    """
    if wording == NO_MORE_THAN_IMPORTANCE:
        # "grew: no more than ..." would praise the edit for a small increase.
        wording = f"the selection reduces it {wording}"
    if row.improved is not None:
        verb = "fell" if row.improved else "grew"
        return f"{_SUBJECT} {verb}{_by(row)} on {where}: {wording}."
    if wording == BEYOND_CHANCE:
        # The controls compare the neurons that stay, so this holds beside an unreliable whole.
        wording = f"only on what stays in the model, {wording}"
    numbers = "; ".join(_change_numbers(row))
    return f"{_SUBJECT} did not change reliably on {where} ({numbers}): {wording}."


def _by(row: SummaryRow) -> str:
    percent = _percent(row, row.delta)
    return "" if percent is None else f" by {abs(percent):.2f} %"


def _change_numbers(row: SummaryRow) -> Iterator[str]:
    """Give the change in percent of the value before, its interval, and the number of units."""
    percent = _percent(row, row.delta)
    if percent is not None:
        yield f"{signed_percent(percent)}"
    if row.ci95_delta is not None:
        ends = [_percent(row, end) for end in row.ci95_delta]
        texts = [signed_percent(end) for end in ends if end is not None]
        if texts:
            yield f"95 % interval {' to '.join(texts)}"
    yield counted(row.n, row.unit)


def _percent(row: SummaryRow, change: float | None) -> float | None:
    """Change as a percentage of the value before; None where that is zero or missing."""
    return None if change is None or not row.before else 100 * change / row.before


def signed_percent(percent: float) -> str:
    """Write a percentage with its sign, a true minus sign for a fall."""
    return f"{percent:+.2f} %".replace("-", "\N{MINUS SIGN}")


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
    fewer = f"{before - after:,} fewer ({100 * (before - after) / before:.3f} %)"
    detail = fewer if after != before else "as many as before"
    numbers = [HeadlineNumber(label="Parameters", value=f"{after:,}", detail=detail)]
    rows = {split: split_row(evidence, PARITY, split) for split in SPLITS}
    numbers += [difference_number(row, split) for split, row in rows.items() if row is not None]
    numbers += _side_numbers(evidence)
    if not evidence.config.controls.enabled:
        numbers.insert(0, HeadlineNumber(label="Controls", value=NO_CONTROLS, tone="worse"))
    return tuple(numbers)


def difference_number(row: SummaryRow, split: Split) -> HeadlineNumber:
    """Make the tile of the change on the pairs of one split."""
    percent = _percent(row, row.delta)
    is_reliable = row.improved is not None or row.ideal is None
    note = "" if is_reliable else "; no reliable change"
    return HeadlineNumber(
        label=f"Difference on {SPLIT_LABELS[split]}",
        value=DASH if percent is None else signed_percent(percent),
        detail=f"mean over {counted(row.n, row.unit)}{note}",
    )


def perplexity_number(language: Mapping[str, Any]) -> HeadlineNumber:
    """Make the tile of what the edit costs the language."""
    perplexity = language["perplexity"]
    return HeadlineNumber(
        label="Perplexity on the prompts",
        value=f"{perplexity['after']:.4g}",
        detail=f"{perplexity['before']:.4g} before; higher is worse",
        tone="worse" if costs_language(language) else "neutral",
    )


def _side_numbers(evidence: Evidence) -> Iterator[HeadlineNumber]:
    language = language_entry(evidence)
    if language is not None:
        yield perplexity_number(language)
    ratio = control_ratio(evidence)
    if ratio["before"] is not None and ratio["after"] is not None:
        yield HeadlineNumber(
            label="Demographic to neutral difference",
            value=f"{ratio['after']:.3f}",
            detail=f"{ratio['before']:.3f} before; 1 means no more than a neutral word",
        )
