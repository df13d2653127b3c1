"""The model card that travels with a checkpoint: the report in Markdown, without pictures."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from huggingface_hub import EvalResult, ModelCardData

from workers.reports.card_compliance import compliance_parts
from workers.reports.document import ReportDocument, Section, Table, sort_rows
from workers.reports.html import spec_json
from workers.reports.markdown import bullets, escape, fact_table, fenced, markdown_table, section
from workers.reports.wording import INTERVAL_NOTE, chance_note, row_words, size_text, table_texts
from workers.runtime.context import SummaryRow


@dataclass(frozen=True, slots=True, kw_only=True)
class CardHeader:
    """What model hubs read from the YAML header of a card.

    `base_model` is a hub name, None for a model that is on no hub; `licence` is inherited from
    the base model, None where unknown. `tags` follow the name of the method; one that praises the
    model, as "debiased", is for the method to give, which knows whether the numbers allow it.
    """

    base_model: str | None
    library_name: str = "transformers"
    tags: tuple[str, ...] = ()
    licence: str | None = None
    language: tuple[str, ...] = ()
    pipeline_tag: str | None = None


def render_markdown(document: ReportDocument, header: CardHeader | None) -> str:
    """Return the card as Markdown, without a header for hubs where there is no model to describe.

    The same document gives the same bytes.

    Texts of the document are escaped, so that a prompt cannot turn into markup.
    """
    sections = [
        "" if header is None else f"---\n{_yaml(document, header)}\n---",
        f"# {escape(document.title)}",
        escape(document.subtitle),
        f"**{escape(document.verdict)}**",
        "\n\n".join(escape(paragraph) for paragraph in document.in_short),
        bullets("Warnings", document.warnings),
        section(
            "What was changed" if document.compares else "What was measured",
            fact_table(document.changed),
        ),
        bullets("Intended use", document.intended_use),
        section("Each metric in a sentence", _findings(document)),
        *(_comparison(document) if document.compares else ()),
        *(_part(part) for part in document.sections),
        *(_plain_table(table) for table in document.tables),
        bullets("Limits: what was not measured", document.limits),
        section("Words used", _glossary(document)),
        *(compliance_parts(document) if document.compliance else ()),
        "" if document.compliance else section("Data used", _data(document)),
        section("Reproduce and verify", _reproduce(document)),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _comparison(document: ReportDocument) -> Iterable[str]:
    """Return the sections that set the edited model beside the base."""
    yield section("Results before and after", _results(document))
    yield section("What the controls say", _controls(document))


def _yaml(document: ReportDocument, header: CardHeader) -> str:
    """Return the YAML header, with a model index of values before and after."""
    results = [result for row in document.rows for result in _eval_results(row, document, header)]
    data = ModelCardData(
        language=list(header.language) or None,
        license=header.licence,
        library_name=header.library_name,
        base_model=header.base_model,
        tags=list(dict.fromkeys((document.method, *header.tags))),
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
    notes = [escape(note) for note in (INTERVAL_NOTE, chance_note(document.rows)) if note]
    return "\n\n".join([counts, markdown_table(columns, rows), *notes])


def _controls(document: ReportDocument) -> str:
    """Return the verdict of the controls and their table."""
    controls = document.controls
    if controls is None:
        return "No controls were run. A smaller number after the edit shows little by itself."
    parts = [f"**{escape(controls.verdict)}**", escape(controls.note)]
    if controls.table is not None:
        parts.append(markdown_table(*table_texts(controls.table)))
    return "\n\n".join(part for part in parts if part)


def _findings(document: ReportDocument) -> str:
    """Return each metric with its meaning and with what was found, gains and losses alike."""
    return "\n".join(
        f"- **{escape(finding.title)}.** {escape(finding.meaning)} {escape(finding.direction)} "
        + " ".join(escape(result.text) for result in finding.results)
        for finding in document.findings
    )


def _part(part: Section) -> str:
    """Return a section without its pictures; nothing where only they are in it."""
    texts = [escape(paragraph) for paragraph in part.text]
    for table in part.tables:
        texts += [f"**{escape(table.title)}**", markdown_table(*table_texts(table))]
        texts += [escape(table.note)] if table.note else []
    return section(escape(part.title), "\n\n".join(texts))


def _glossary(document: ReportDocument) -> str:
    """Return the glossary as a list."""
    return "\n".join(
        f"- **{escape(entry.term)}**: {escape(entry.sentence)}" for entry in document.glossary
    )


def _data(document: ReportDocument) -> str:
    """Return the data used with licences, or nothing."""
    if not document.data_used:
        return ""
    rows = [(data.name, data.role, data.licence) for data in document.data_used]
    return markdown_table(("Data", "Role", "Licence"), rows)


def _reproduce(document: ReportDocument) -> str:
    """Return command, provenance, digests, versions and the resolved spec."""
    reproduce = document.reproduce
    files = [(f.origin, f.path, size_text(f.size_bytes), f.sha256) for f in reproduce.files]
    versions = ", ".join(f"{name} {text}" for name, text in sorted(reproduce.versions.items()))
    parts = [
        fenced(reproduce.command, "sh"),
        fact_table(reproduce.provenance),
        markdown_table(("Part of", "File", "Size", "SHA-256"), files) if files else "",
        f"Versions: {escape(versions)}" if versions else "",
        fenced(spec_json(reproduce.resolved_spec), "json"),
    ]
    return "\n\n".join(part for part in parts if part)


def _plain_table(table: Table) -> str:
    """Return a table as a section of its own."""
    note = f"\n\n{escape(table.note)}" if table.note else ""
    return section(escape(table.title), markdown_table(*table_texts(table)) + note)
