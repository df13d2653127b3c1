"""What a report says, whatever the method: facts in, no layout.

An engine fills a `ReportDocument`; `workers.reports.html` and `workers.reports.card` render it.
Nothing in it is decided at render time except wording of the summary rows, so the page, the
card and report.json cannot disagree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from app.catalog.method import MetricInfo
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
class GlossaryEntry:
    """One term and a plain sentence on what it means."""

    term: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A plain table. Columns whose cells are all numbers are set as numbers; None is a dash."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.title!r}: a row has {len(row)} cells")


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """What the controls say. `claim` is True only where the effect is beyond every control."""

    verdict: str
    claim: bool = False
    note: str = ""
    table: Table | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationPair:
    """Continuations of one prompt by the base and by the edited model, without the prompt."""

    prompt: str
    before: str
    after: str
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataUse:
    """A data set or word list that was used, for what, and under which licence."""

    name: str
    role: str
    licence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHash:
    """One file and its digest."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduce:
    """All that is needed to run the job again and to check that it is the same."""

    command: str
    resolved_spec: Mapping[str, Any]
    provenance: tuple[Fact, ...] = ()
    files: tuple[FileHash, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportDocument:
    """A whole report.

    `verdict` is one sentence; `metrics` gives title and unit by metric name; the pictures named
    `summary` and `controls` stand with the table and the controls, all others in their own
    section. Texts are plain, never HTML or Markdown.
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
    tables: tuple[Table, ...] = ()
    controls: Controls | None = None
    generations: tuple[GenerationPair, ...] = ()
    figures: tuple[Picture, ...] = ()
    warnings: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    intended_use: tuple[str, ...] = ()
    data_used: tuple[DataUse, ...] = ()
    glossary: tuple[GlossaryEntry, ...] = ()


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
