"""The report as one self-contained page: no script, no request, readable on paper and phone."""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from workers.reports.captions import caption_of, figure_groups
from workers.reports.document import ReportDocument, Section, Table
from workers.reports.picture import Picture
from workers.reports.wording import (
    INTERVAL_NOTE,
    RowWords,
    chance_note,
    first_difference,
    generation_groups,
    group_note,
    group_words,
    is_number,
    row_words,
    size_text,
    table_texts,
)
from workers.runtime.context import SummaryRow

TEMPLATE = "report.html.j2"
# Pictures that stand beside the text they belong to.
PLACED_FIGURES = ("before_after", "controls")
# Pictures up to this many pixels wide fit a phone as they are; wider ones scroll.
_NARROW = 660
# Longer tables are a line that opens them. Those beyond the second limit are not printed, nor
# are those that are folded in any case and longer than the first.
_FOLDED_ROWS = 25
_PRINTED_ROWS = 40


def render_html(document: ReportDocument) -> str:
    """Return the page as text; the same document gives the same bytes.

    Raises
    ------
    ValueError
        If the resolved spec holds a number that JSON cannot carry.
    """
    by_name = {figure.name: figure for figure in document.figures}
    placed = {
        *PLACED_FIGURES,
        *(name for part in document.sections for name in part.figures),
        *(finding.figure for finding in document.findings),
    }
    return (
        _environment()
        .get_template(TEMPLATE)
        .render(
            doc=document,
            metric_groups=_metric_groups(document),
            interval_note=INTERVAL_NOTE,
            chance_note=chance_note(document.rows),
            spec_json=spec_json(document.reproduce.resolved_spec),
            figures_by_name=by_name,
            bars_figure=by_name.get("before_after"),
            controls_figure=by_name.get("controls"),
            sections=[_section_view(part, by_name) for part in document.sections],
            generations=generation_groups(document.generations),
            has_edited_texts=any(text.after is not None for text in document.generations),
            figure_groups=figure_groups([f for f in document.figures if f.name not in placed]),
            group_note=group_note(document.compliance.groups) if document.compliance else "",
        )
    )


def spec_json(spec: Mapping[str, Any]) -> str:
    """Return the resolved spec as sorted, strict JSON."""
    return json.dumps(spec, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)


def _environment() -> Environment:
    """Return the template environment: everything escaped, nothing undefined passes."""
    environment = Environment(
        loader=PackageLoader("workers.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        caption=caption_of,
        code_spans=_code_spans,
        data_uri=_data_uri,
        folding=_folding,
        pixels=_pixels,
        group_words=group_words,
        numeric_columns=_numeric_columns,
        size=size_text,
        texts=table_texts,
        tied=_tied,
    )
    environment.globals.update(first_difference=first_difference, narrow=_NARROW)
    return environment


def _tied(text: str) -> str:
    """Keep numbers and their percent sign on one line."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")


def _code_spans(text: str) -> list[tuple[str, bool]]:
    """Cut text at its backticks: pieces, and whether each is a name to be set as code."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:
        return [(text, False)]
    return [(piece, position % 2 == 1) for position, piece in enumerate(pieces)]


def _section_view(part: Section, figures: Mapping[str, Picture]) -> dict[str, Any]:
    """Return a section with its pictures in place of their names; absent ones are left out."""
    present = [figures[name] for name in part.figures if name in figures]
    return {
        "title": part.title,
        "text": part.text,
        "tables": part.tables,
        "groups": figure_groups(present),
    }


def _words(rows: Sequence[SummaryRow], document: ReportDocument) -> list[RowWords]:
    """Return rows in words."""
    return [row_words(row, document.metrics) for row in rows]


def _metric_groups(document: ReportDocument) -> list[dict[str, Any]]:
    """Return the rows of the table under one head a benchmark and metric, in order."""
    keys = dict.fromkeys((row.benchmark, row.metric) for row in document.rows)
    groups = []
    for benchmark, metric in keys:
        rows = [r for r in document.rows if (r.benchmark, r.metric) == (benchmark, metric)]
        words = _words(rows, document)
        info = document.metrics.get(metric)
        groups.append(
            {
                "benchmark": benchmark,
                "metric": words[0].metric,
                "unit": info.unit if info else "",
                "ideal": words[0].ideal,
                "rows": words,
            }
        )
    return groups


def _folding(table: Table) -> str:
    """Say how a table is folded: not at all (empty), `short` (open on paper), or `long`."""
    rows = len(table.rows)
    if rows > (_FOLDED_ROWS if table.is_folded else _PRINTED_ROWS):
        return "long"
    return "short" if table.is_folded or rows > _FOLDED_ROWS else ""


def _pixels(picture: Picture) -> tuple[int, int]:
    """Return width and height of a picture, which stand in the first chunk of its file."""
    width, height = (int.from_bytes(picture.png[start : start + 4], "big") for start in (16, 20))
    return width, height


def _data_uri(picture: Picture) -> str:
    """Return the picture as a data URI."""
    return "data:image/png;base64," + base64.b64encode(picture.png).decode("ascii")


def _numeric_columns(table: Table) -> list[bool]:
    """Return for each column whether its cells are numbers."""
    return [all(is_number(row[i]) for row in table.rows) for i in range(len(table.columns))]
