"""The model card that travels with a checkpoint: the report in Markdown, without pictures."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from huggingface_hub import EvalResult, ModelCardData

from workers.reports.document import Fact, ReportDocument, Table, sort_rows
from workers.reports.html import spec_json
from workers.reports.wording import INTERVAL_NOTE, chance_note, row_words, size_text, table_texts
from workers.runtime.context import SummaryRow

# What starts markup anywhere in a line of CommonMark or of its tables, and at its start only.
_MARKUP = re.compile(r"([\\`*_\[\]<>|~&$])")
_LINE_START = re.compile(r"^([-+=](?=[-=\s]|$)|#|\d+(?=[.)](?:\s|$)))")


@dataclass(frozen=True, slots=True, kw_only=True)
class CardHeader:
    """What model hubs read from the YAML header of a card.

    `base_model` is a hub name, None for a model that is on no hub; `licence` is inherited from
    the base model, None where unknown.
    """

    base_model: str | None
    library_name: str = "transformers"
    tags: tuple[str, ...] = ()
    licence: str | None = None
    language: tuple[str, ...] = ()
    pipeline_tag: str | None = None


def render_markdown(document: ReportDocument, header: CardHeader) -> str:
    """Return the card as Markdown; the same document gives the same bytes.

    Texts of the document are escaped, so that a prompt cannot turn into markup.
    """
    sections = [
        f"---\n{_yaml(document, header)}\n---",
        f"# {_escape(document.title)}",
        _escape(document.subtitle),
        f"**{_escape(document.verdict)}**",
        _bullets("Warnings", document.warnings),
        _section("What was changed", _fact_table(document.changed)),
        _bullets("Intended use", document.intended_use),
        _section("Results before and after", _results(document)),
        _section("What the controls say", _controls(document)),
        *(_plain_table(table) for table in document.tables),
        _bullets("Limits: what was not measured", document.limits),
        _section("Words used", _glossary(document)),
        _section("Data used", _data(document)),
        _section("Reproduce and verify", _reproduce(document)),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _yaml(document: ReportDocument, header: CardHeader) -> str:
    """Return the YAML header, with a model index of values before and after."""
    results = [result for row in document.rows for result in _eval_results(row, document, header)]
    data = ModelCardData(
        language=list(header.language) or None,
        license=header.licence,
        library_name=header.library_name,
        base_model=header.base_model,
        tags=list(dict.fromkeys(("debiased", document.method, *header.tags))),
        pipeline_tag=header.pipeline_tag,
        model_name=document.title if results else None,
        eval_results=results or None,
    )
    return str(data.to_yaml())


def _eval_results(
    row: SummaryRow, document: ReportDocument, header: CardHeader
) -> Iterable[EvalResult]:
    """Return the values before and after of one row as the hub's model index has them."""
    words = row_words(row, document.metrics)
    for stage, value in (("before", row.before), ("after", row.after)):
        if value is None:
            continue
        yield EvalResult(
            task_type=header.pipeline_tag or "other",
            dataset_type=re.sub(r"[^a-z0-9]+", "-", row.benchmark.lower()).strip("-"),
            dataset_name=row.benchmark,
            metric_type=row.metric,
            metric_name=f"{words.name}, {stage}",
            metric_value=value,
        )


def _results(document: ReportDocument) -> str:
    """Return a count of verdicts and the table of all rows."""
    ordered = sort_rows(document.rows)
    counts = (
        f"{len(ordered.improved)} better, {len(ordered.worse)} worse, "
        f"{len(ordered.unchanged)} without a reliable change, {len(ordered.unjudged)} not judged."
    )
    columns = ("Metric", "Group", "Before", "After", "Change", "Units", "Verdict")
    rows = []
    for row in document.rows:
        words = row_words(row, document.metrics)
        change = f"{words.change} {words.change_percent}".strip()
        rows.append(
            (
                words.metric,
                words.group,
                f"{words.before} [{words.before_interval or 'no interval'}]",
                f"{words.after} [{words.after_interval or 'no interval'}]",
                f"{change} [{words.change_interval}]",
                words.evidence,
                words.verdict,
            )
        )
    notes = [_escape(note) for note in (INTERVAL_NOTE, chance_note(len(rows))) if note]
    return "\n\n".join([counts, _markdown_table(columns, rows), *notes])


def _controls(document: ReportDocument) -> str:
    """Return the verdict of the controls and their table."""
    controls = document.controls
    if controls is None:
        return "No controls were run. A smaller number after the edit shows little by itself."
    parts = [f"**{_escape(controls.verdict)}**", _escape(controls.note)]
    if controls.table is not None:
        parts.append(_markdown_table(*table_texts(controls.table)))
    return "\n\n".join(part for part in parts if part)


def _glossary(document: ReportDocument) -> str:
    """Return the glossary as a list."""
    return "\n".join(
        f"- **{_escape(entry.term)}**: {_escape(entry.sentence)}" for entry in document.glossary
    )


def _data(document: ReportDocument) -> str:
    """Return the data used with licences, or nothing."""
    if not document.data_used:
        return ""
    rows = [(data.name, data.role, data.licence) for data in document.data_used]
    return _markdown_table(("Data", "Role", "Licence"), rows)


def _reproduce(document: ReportDocument) -> str:
    """Return command, provenance, digests, versions and the resolved spec."""
    reproduce = document.reproduce
    files = [(f.path, size_text(f.size_bytes), f.sha256) for f in reproduce.files]
    versions = ", ".join(f"{name} {text}" for name, text in sorted(reproduce.versions.items()))
    parts = [
        _fenced(reproduce.command, "sh"),
        _fact_table(reproduce.provenance),
        _markdown_table(("File", "Size", "SHA-256"), files) if files else "",
        f"Versions: {_escape(versions)}" if versions else "",
        _fenced(spec_json(reproduce.resolved_spec), "json"),
    ]
    return "\n\n".join(part for part in parts if part)


def _section(title: str, body: str) -> str:
    """Return a section, or nothing where it has no body."""
    return f"## {title}\n\n{body}" if body else ""


def _bullets(title: str, items: Sequence[str]) -> str:
    """Return a section of bullets, or nothing."""
    return _section(title, "\n".join(f"- {_escape(item)}" for item in items))


def _fact_table(facts: Sequence[Fact]) -> str:
    """Return facts as a two-column table, or nothing."""
    if not facts:
        return ""
    return _markdown_table(("", ""), [(fact.label, fact.value) for fact in facts])


def _plain_table(table: Table) -> str:
    """Return a table as a section of its own."""
    note = f"\n\n{_escape(table.note)}" if table.note else ""
    return _section(_escape(table.title), _markdown_table(*table_texts(table)) + note)


def _markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with escaped cells."""
    lines = [columns, ["---"] * len(columns)]
    texts = [[_escape(text) for text in lines[0]], lines[1]]
    texts += [[_escape(cell) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in texts)


def _escape(text: str) -> str:
    """Return `text` as Markdown that reads the same, on one line."""
    escaped = _MARKUP.sub(r"\\\1", " ".join(text.split()))
    return _LINE_START.sub(_escape_line_start, escaped)


def _escape_line_start(match: re.Match[str]) -> str:
    """Return a list or heading mark as text; a digit cannot be escaped, its full stop can."""
    mark = match[0]
    return f"{mark}\\" if mark.isdigit() else f"\\{mark}"


def _fenced(text: str, language: str) -> str:
    """Return a code block whose fence is longer than any run of backticks inside."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
