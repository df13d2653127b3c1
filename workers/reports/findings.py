"""What was found for a metric, in one sentence that says gains and losses in the same words."""

from collections.abc import Mapping

from app.catalog.method import MetricInfo
from workers.evaluation.bootstrap import MIN_UNITS_FOR_CLAIM
from workers.reports.document import Statement, Tone
from workers.reports.wording import BORDERLINE_P, RowWords, row_words, too_few
from workers.runtime.context import SummaryRow


def direction_of(info: MetricInfo) -> str:
    """Say which way is better, in one sentence."""
    if info.lower_is_better is None and info.ideal is None:
        return "No value is better than another."
    better = "Nearer to the ideal is better"
    if info.lower_is_better is not None:
        better = "Lower is better" if info.lower_is_better else "Higher is better"
    return f"{better}." if info.ideal is None else f"{better}; the ideal is {info.ideal:g}."


def result_of(row: SummaryRow, metrics: Mapping[str, MetricInfo], *, where: str) -> Statement:
    """Say what was found on the units that `where` names, as in "held-out pairs"."""
    words = row_words(row, metrics)
    units = where if where.startswith(f"{row.n} ") else f"{row.n} {where}"
    if row.before is None or row.after is None:
        return Statement(f"On {units}: not measured.")
    if row.delta == 0:
        return Statement(f"On {units}: no change, {words.before} before and after.")
    return Statement(f"On {units}: {_found(row, words)}", _tone(row))


def _found(row: SummaryRow, words: RowWords) -> str:
    moved = "fell" if (row.delta or 0) < 0 else "rose"
    values = f"from {words.before} to {words.after}"
    change = _change(row, words)
    if row.ideal is None and row.improved is None:
        return f"it {moved} {values} ({change}); neutral words, so neither good nor bad."
    if row.n < MIN_UNITS_FOR_CLAIM:
        return f"{words.before} before and {words.after} after ({change})."
    if row.improved is None:
        return f"no reliable change, {words.before} before and {words.after} after ({change})."
    verdict = "it got better" if row.improved else "it got worse"
    borderline = row.p_value is not None and row.p_value > BORDERLINE_P
    only_just = f", but only just (p = {words.p_value})" if borderline else ""
    return f"{verdict}{only_just}. It {moved} {values} ({change})."


def _change(row: SummaryRow, words: RowWords) -> str:
    parts = [words.change_percent or words.change]
    # Of so few units, a bootstrap interval is little more than their range.
    if row.n < MIN_UNITS_FOR_CLAIM:
        parts.append(too_few(row.n, row.unit))
    elif row.ci95_delta is not None:
        parts.append(f"95 % interval of the change {words.change_interval}")
    return "; ".join(parts)


def _tone(row: SummaryRow) -> Tone:
    if row.improved is None:
        return "neutral"
    return "better" if row.improved else "worse"
