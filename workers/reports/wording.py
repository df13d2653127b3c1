"""How numbers, intervals and verdicts are put into words, the same on page and card."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, isfinite

from app.catalog.method import MetricInfo
from workers.evaluation.bootstrap import MIN_UNITS_FOR_CLAIM
from workers.reports.document import Cell, GenerationPair, Table
from workers.reports.group_rates import GroupRates, Interval, is_below_line
from workers.reports.picture import Scale, decimals_for, scale_for, signed_alike
from workers.runtime.context import SummaryRow

DASH = "\N{EN DASH}"
# Where one number is tiny beside the other, more digits than this only make noise look exact.
_MAX_EXTRA_DECIMALS = 3
# The usual level; the sign-flip test keeps it at any number of units, the interval does not.
BORDERLINE_P = 0.05
_GROUPED_FROM = 10_000
# Half the distance from 1 to the next float32: models and their activations are stored so.
_FLOAT32_RESOLUTION = 2.0**-24

INTERVAL_NOTE = (
    "Intervals are 95 % bootstrap intervals over the unit named in each row; the interval of the "
    "change is paired, with the same units for both models. A change counts as better or worse "
    f"only if that interval excludes zero and there are at least {MIN_UNITS_FOR_CLAIM} units. "
    "With few units (below about 20) such intervals are somewhat too narrow; where the p-value "
    f"of the sign-flip test is above {BORDERLINE_P:g} as well, the verdict says borderline."
)

GROUP_NOTE = (
    "The ratio compares each group with the one that has the best value, which has the ratio 1. A "
    "common rule of thumb, four fifths, looks at ratios below 0.8; the mark is an aid to reading "
    "and no test. With few units a ratio below 0.8 can be chance, and one above it can hide a "
    "difference that matters."
)
NO_RATE_NOTE = (
    "The values are no selection rates: nobody is chosen or refused by them, so a ratio is neither "
    "passed nor failed, and none is marked. They say how strongly the model reacts to a swapped "
    "word. The ratio compares each group with the one that has the best value, which has the "
    "ratio 1. Each group has sentences of its own, so part of a ratio may come from the sentences."
)

# From here on, the share of false verdicts that 95 % intervals allow is a row or more in some
# tables; below, the remark would only distract.
_MANY_ROWS = 10


@dataclass(frozen=True, slots=True)
class RowWords:
    """One summary row in words; every field is display text."""

    metric: str
    group: str
    before: str
    before_interval: str
    after: str
    after_interval: str
    change: str
    change_percent: str
    change_interval: str
    evidence: str
    p_value: str
    ideal: str
    tone: str
    verdict: str

    @property
    def name(self) -> str:
        """Metric and group."""
        return f"{self.metric} · {self.group}"


def row_words(row: SummaryRow, metrics: Mapping[str, MetricInfo]) -> RowWords:
    """Return `row` as the texts to show."""
    info = metrics.get(row.metric)
    scale = scale_for([value for value in (row.before, row.after) if value is not None])
    decimals = _row_decimals(row, scale)
    change, change_interval = _change(row, scale)
    tone, verdict = _verdict(row)
    return RowWords(
        metric=info.title if info else row.metric,
        group=row.group or "all groups",
        before=_fixed(row.before, decimals, scale),
        before_interval=_interval(row.ci95_before, decimals, scale),
        after=_fixed(row.after, decimals, scale),
        after_interval=_interval(row.ci95_after, decimals, scale),
        change=change,
        change_percent=_percent(row),
        change_interval=change_interval,
        evidence=f"n = {counted(row.n, row.unit)}",
        p_value=DASH if row.p_value is None else _p_value(row.p_value),
        ideal=DASH if row.ideal is None else f"{row.ideal:g}",
        tone=tone,
        verdict=verdict,
    )


@dataclass(frozen=True, slots=True)
class GroupWords:
    """One line of a table of groups; every text is display text."""

    group: str
    number: str
    before: str
    before_interval: str
    ratio_before: str
    below_before: bool
    after: str
    after_interval: str
    ratio_after: str
    below_after: bool


def group_words(table: GroupRates) -> list[GroupWords]:
    """Return the lines of a table of groups as the texts to show."""
    values = [v for group in table.groups for v in (group.before, group.after) if v is not None]
    scale = scale_for(values)
    decimals = decimals_for(scale.scaled(values))

    def interval(ends: Interval | None) -> str:
        return _interval(ends, decimals, scale)

    return [
        GroupWords(
            group=line.value.group,
            number=counted(line.value.n, table.unit),
            before=_fixed(line.value.before, decimals, scale),
            before_interval=interval(line.value.ci95_before),
            ratio_before=_ratio(line.ratio_before),
            below_before=table.is_selection_rate and is_below_line(line.ratio_before),
            after=_fixed(line.value.after, decimals, scale),
            after_interval=interval(line.value.ci95_after),
            ratio_after=_ratio(line.ratio_after),
            below_after=table.is_selection_rate and is_below_line(line.ratio_after),
        )
        for line in table.lines
    ]


def group_note(tables: Sequence[GroupRates]) -> str:
    """Say how to read tables of groups, and what they are not."""
    kinds = {table.is_selection_rate for table in tables}
    notes = {True: GROUP_NOTE, False: NO_RATE_NOTE}
    return " ".join(note for kind, note in notes.items() if kind in kinds)


def generation_groups(
    texts: Sequence[GenerationPair],
) -> list[list[tuple[GenerationPair, tuple[str, str, str]]]]:
    """Put the prompts of one pair together, each split around the words that set it apart."""
    groups: list[list[GenerationPair]] = []
    for text in texts:
        if groups and text.group and groups[-1][0].group == text.group:
            groups[-1].append(text)
        else:
            groups.append([text])
    return [
        list(zip(group, _around_swap([t.prompt for t in group]), strict=True)) for group in groups
    ]


def _around_swap(prompts: Sequence[str]) -> list[tuple[str, str, str]]:
    """Split two prompts into common start, what differs, and common end; one is left whole."""
    if len(prompts) != 2 or prompts[0] == prompts[1]:
        return [(prompt, "", "") for prompt in prompts]
    words = [prompt.split(" ") for prompt in prompts]
    shortest = min(map(len, words))
    start = next((i for i in range(shortest) if words[0][i] != words[1][i]), shortest)
    left = shortest - start
    end = next((i for i in range(left) if words[0][-1 - i] != words[1][-1 - i]), left)
    return [_split_at(line, start, len(line) - end) for line in words]


def one_sentence(first: str, second: str) -> str:
    """Write two prompts as one, as in "The [boy / girl] ran", what differs in brackets."""
    if first == second:
        return first
    (start, word_1, end), (_, word_2, _) = _around_swap([first, second])
    gap = " " if start and not start.endswith(" ") else ""
    return f"{start}{gap}[{word_1 or DASH} / {word_2 or DASH}]{end}"


def _split_at(words: Sequence[str], start: int, stop: int) -> tuple[str, str, str]:
    """Join words to three texts whose concatenation is the whole."""
    head, middle, tail = (
        " ".join(part) for part in (words[:start], words[start:stop], words[stop:])
    )
    gap_before = " " if head and (middle or tail) else ""
    gap_after = " " if middle and tail else ""
    return head + gap_before, middle, gap_after + tail


def _ratio(value: float | None) -> str:
    """Return a ratio to two decimals, cut so that one below a line never reads as on it."""
    if value is None:
        return DASH
    # 0.29 * 100 is 28.999…: the addend is far below the two decimals that are shown.
    return f"{floor(value * 100 + 1e-9) / 100:.2f}"


def above_resolution(value: float, *, of: float) -> float:
    """Return `value`, or 0 where float32 cannot tell a quantity of size `of` from itself plus it.

    For tables: the remainder of a subtraction of two equal means is rounding and no finding.
    """
    return value if abs(value) > _FLOAT32_RESOLUTION * abs(of) else 0.0


def chance_note(rows: Sequence[SummaryRow]) -> str:
    """Return how many verdicts chance alone would give in a long table, else nothing.

    Rows without an ideal, as those of neutral words, and rows of too few units never get a
    verdict, and do not count.
    """
    judged = sum(row.ideal is not None and row.n >= MIN_UNITS_FOR_CLAIM for row in rows)
    if judged < _MANY_ROWS:
        return ""
    return (
        f"{judged} rows of the table can get a verdict: even if nothing had changed, about "
        f"{0.05 * judged:.2g} of them would be called better or worse by chance. Rows that share "
        "units or metrics are not independent evidence; look for a pattern, not for single rows."
    )


def counted(number: int, noun: str) -> str:
    """Return a number with its noun in the right form."""
    plural = noun if number == 1 or noun.endswith("s") else f"{noun}s"
    return f"{number} {plural}"


def too_few(number: int, noun: str) -> str:
    """Return why no interval is printed beside a number of so few units."""
    return f"too few {counted(0, noun).removeprefix('0 ')} ({number}) to tell"


def three_digits(value: float) -> str:
    """Return a number with three significant digits at most, never in powers of ten."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:.{decimals_for([rounded])}f}".replace("-", "\N{MINUS SIGN}")


def listed(items: Sequence[str]) -> str:
    """Return items as an enumeration in words, as in "a, b and c"."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def table_texts(table: Table) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows of a table as text.

    The numbers of a column share their decimals, four digits for the largest, and a power of ten
    in its head where they are all tiny; so they can be compared by looking down the column.
    """
    columns = [[row[i] for row in table.rows] for i in range(len(table.columns))]
    texts = [_column_texts(column) for column in columns]
    heads = [head + times for head, (times, _) in zip(table.columns, texts, strict=True)]
    rows = [[cells[i] for _, cells in texts] for i in range(len(table.rows))]
    return heads, rows


def is_number(cell: Cell) -> bool:
    """Return whether a cell is a number or nothing."""
    return cell is None or isinstance(cell, int | float)


def _column_texts(cells: Sequence[Cell]) -> tuple[str, list[str]]:
    """Return what follows the head of a column, and its cells as text."""
    numbers = [cell for cell in cells if isinstance(cell, int | float) and isfinite(cell)]
    plain = all(isinstance(cell, int) for cell in numbers)
    if plain or not all(map(is_number, cells)):
        return "", [_cell_text(cell) for cell in cells]
    scale = scale_for(numbers)
    scaled = scale.scaled(numbers)
    decimals = decimals_for(scaled) + 1
    while decimals and all(f"{value:.{decimals}f}".endswith("0") for value in scaled):
        decimals -= 1
    bare = Scale(0)
    shown = iter(_fixed(value, decimals, bare) for value in scaled)
    return scale.times, [
        next(shown) if isinstance(cell, int | float) and isfinite(cell) else _cell_text(cell)
        for cell in cells
    ]


def _cell_text(cell: Cell) -> str:
    """Return a cell that shares nothing with its column as text; a dash for nothing."""
    if cell is None:
        return DASH
    if isinstance(cell, float):
        return f"{cell:.4g}".replace("-", "\N{MINUS SIGN}") if isfinite(cell) else "not finite"
    return grouped(cell) if isinstance(cell, int) else str(cell)


def grouped(number: int) -> str:
    """Return a whole number with separators of thousands from five digits on."""
    return f"{number:,}" if abs(number) >= _GROUPED_FROM else f"{number}"


def size_text(size_bytes: int) -> str:
    """Return a file size in the decimal unit that fits."""
    size = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.4g} TB"


def first_difference(before: str, after: str) -> tuple[str, tuple[str, str], tuple[str, str]]:
    """Split two texts at the first word in which they differ.

    Returns
    -------
    tuple
        The common start, then for each text its first differing word and what follows. Both
        words are empty where the texts are equal; one is where that text ends first.
    """
    limit = min(len(before), len(after))
    split = next((i for i in range(limit) if before[i] != after[i]), limit)
    if before == after:
        return before, ("", ""), ("", "")
    # Where only one of them ends its word here, the words differ from their start.
    inside = not all(text[split : split + 1].strip() == "" for text in (before, after))
    while inside and split and not before[split - 1].isspace():
        split -= 1
    return before[:split], _first_word(before[split:]), _first_word(after[split:])


def _first_word(text: str) -> tuple[str, str]:
    """Split `text` after its first word; blanks before the word belong to it."""
    end = len(text) - len(text.lstrip())
    while end < len(text) and not text[end].isspace():
        end += 1
    return text[:end], text[end:]


def _verdict(row: SummaryRow) -> tuple[str, str]:
    """Return tone and words of a verdict."""
    if row.ideal is None:
        return "neutral", "not judged"
    if row.improved is None:
        return "neutral", "no reliable change"
    tone = "better" if row.improved else "worse"
    borderline = row.p_value is not None and row.p_value > BORDERLINE_P
    return tone, f"{tone}, borderline" if borderline else tone


def _row_decimals(row: SummaryRow, scale: Scale) -> int:
    """Return decimals at which values and their change can both be read."""
    values = [value for value in (row.before, row.after) if value is not None]
    least = decimals_for(scale.scaled(values))
    changes = [row.delta, *(row.ci95_delta or ())] if row.delta else []
    # Two digits of the change suffice in the values; the change itself is shown with three.
    needed = decimals_for(scale.scaled(changes)) - 1
    return min(max(least, needed), least + _MAX_EXTRA_DECIMALS)


def _fixed(value: float | None, decimals: int, scale: Scale) -> str:
    """Return a value with so many decimals and a true minus sign."""
    if value is None:
        return DASH
    return _plain(scale.scaled([value])[0], decimals) + scale.times


def _interval(ends: tuple[float, float] | None, decimals: int, scale: Scale) -> str:
    """Return an interval as text."""
    if ends is None:
        return ""
    return " to ".join(_plain(end, decimals) for end in scale.scaled(ends)) + scale.times


def _change(row: SummaryRow, scale: Scale) -> tuple[str, str]:
    """Return the change and its interval as text."""
    if row.delta is None:
        return DASH, "not available"
    delta, *ends = signed_alike(scale.scaled([row.delta, *(row.ci95_delta or ())]))
    interval = " to ".join(ends) + scale.times if ends else "not available"
    return delta + scale.times, interval


def _plain(value: float, decimals: int) -> str:
    """Return a number with so many decimals and a true minus sign."""
    return f"{value:.{decimals}f}".replace("-", "\N{MINUS SIGN}")


def _percent(row: SummaryRow) -> str:
    """Return the change in percent of the value before, or nothing where that has no meaning."""
    if not row.before or row.delta is None:
        return ""
    return f"{100 * row.delta / abs(row.before):+.1f} %".replace("-", "\N{MINUS SIGN}")


def _p_value(value: float) -> str:
    """Return a p-value to two digits, never as zero."""
    return "< 0.001" if value < 0.001 else f"{value:.2g}"
