"""What a report says, whatever the method: facts in, no layout.

An engine fills a `ReportDocument`; `workers.reports.html` and `workers.reports.card` render it.
Nothing in it is decided at render time except wording of the summary rows, so the page, the
card and report.json cannot disagree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from app.catalog.method import MetricInfo
from workers.reports.group_rates import GroupRates
from workers.reports.picture import Picture
from workers.runtime.context import SummaryRow

Tone = Literal["better", "worse", "mixed", "neutral"]
Cell = str | float | int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadlineNumber:
    """One number of the first screen, with a line on its uncertainty or meaning."""

    label: str
    value: str
    detail: str = ""
    tone: Tone = "neutral"


@dataclass(frozen=True, slots=True)
class Fact:
    """One labelled fact."""

    label: str
    value: str


@dataclass(frozen=True, slots=True)
class Statement:
    """One sentence on a result, and whether it tells of a gain or a loss."""

    text: str
    tone: Tone = "neutral"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFinding:
    """One metric for people who have never met it.

    `meaning` says what it is and `direction` which way is better, each in one sentence; `results`
    says what was found, the most telling set of units first. `figure` names a picture of the
    document that stands beside it.
    """

    metric: str
    title: str
    meaning: str
    direction: str
    results: tuple[Statement, ...]
    figure: str = ""


@dataclass(frozen=True, slots=True)
class GlossaryEntry:
    """One term and a plain sentence on what it means."""

    term: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A plain table. Columns whose cells are all numbers are set as numbers; None is a dash.

    `is_folded` asks for a line that opens the table, as the page does with every long one.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    is_folded: bool = False

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.title!r}: a row has {len(row)} cells")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the report on one question: paragraphs, tables and pictures.

    `figures` names pictures of the document; they stand here and not among the others.
    """

    title: str
    text: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """What the controls say. `claim` is True only where the effect is beyond every control."""

    verdict: str
    claim: bool = False
    note: str = ""
    table: Table | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationPair:
    """Continuations of one prompt by the base and by the edited model, without the prompt.

    `after` is None where there is no edited model. Neighbours of one `group` are the prompts of
    one pair, and stand side by side. `changed_at` counts generated tokens from 1 up to the first
    that differs, None where all are the same or nobody counted.
    """

    prompt: str
    before: str
    after: str | None
    label: str = ""
    group: str = ""
    changed_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataUse:
    """A data set or word list that was used: for what, where from, under which licence.

    `amount` counts its units by use; `personal_data` says what is known of personal data in it.
    """

    name: str
    role: str
    licence: str
    amount: str = ""
    source: str = ""
    personal_data: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHash:
    """One file and its digest; `origin` says of what it is a part."""

    path: str
    size_bytes: int
    sha256: str
    origin: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduce:
    """All that is needed to run the job again and to check that it is the same."""

    command: str
    resolved_spec: Mapping[str, Any]
    provenance: tuple[Fact, ...] = ()
    files: tuple[FileHash, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """How a reader can check one statement: who needs what, and what to do."""

    statement: str
    who: str
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compliance:
    """What an auditor asks first: scope, measures, gaps, groups, and how to check it all.

    It states facts of the job only; it names no law and judges nothing by one.
    """

    scope: tuple[Fact, ...]
    measures: tuple[Fact, ...] = ()
    not_measured: tuple[Fact, ...] = ()
    groups: tuple[GroupRates, ...] = ()
    verification: tuple[Verification, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportDocument:
    """A whole report.

    `verdict` is one sentence; `in_short` tells the rest of the story in a few; `metrics` gives
    title and unit by metric name. The pictures named `before_after` and `controls` stand with the
    texts they belong to, those that a section or finding names stand there, and all others in a
    part of their own. `references` are titles with their address. `compares` is False where there
    is no edited model: `changed` then says what was measured, and no verdict or control is shown.
    Texts are plain, never HTML or Markdown.
    """

    title: str
    subtitle: str
    verdict: str
    tone: Tone
    method: str
    headline: tuple[HeadlineNumber, ...]
    changed: tuple[Fact, ...]
    rows: tuple[SummaryRow, ...]
    metrics: Mapping[str, MetricInfo]
    reproduce: Reproduce
    in_short: tuple[str, ...] = ()
    findings: tuple[MetricFinding, ...] = ()
    sections: tuple[Section, ...] = ()
    tables: tuple[Table, ...] = ()
    controls: Controls | None = None
    generations: tuple[GenerationPair, ...] = ()
    figures: tuple[Picture, ...] = ()
    warnings: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    intended_use: tuple[str, ...] = ()
    data_used: tuple[DataUse, ...] = ()
    glossary: tuple[GlossaryEntry, ...] = ()
    compliance: Compliance | None = None
    references: tuple[Fact, ...] = ()
    compares: bool = True


@dataclass(frozen=True, slots=True)
class SortedRows:
    """Summary rows by verdict, each in the order given."""

    improved: tuple[SummaryRow, ...]
    worse: tuple[SummaryRow, ...]
    unchanged: tuple[SummaryRow, ...]
    unjudged: tuple[SummaryRow, ...]


def sort_rows(rows: Sequence[SummaryRow]) -> SortedRows:
    """Sort rows into improved, worse and without reliable change.

    A row without an ideal (neutral control pairs) cannot get better or worse: it is unjudged.
    """
    return SortedRows(
        improved=tuple(row for row in rows if row.improved is True),
        worse=tuple(row for row in rows if row.improved is False),
        unchanged=tuple(r for r in rows if r.improved is None and r.ideal is not None),
        unjudged=tuple(row for row in rows if row.ideal is None),
    )
