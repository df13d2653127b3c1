"""Pieces of Markdown whose texts read the same after rendering, whatever is in them."""

import re
from collections.abc import Sequence

from workers.reports.document import Fact

# What starts markup anywhere in a line of CommonMark or of its tables, and at its start only.
_MARKUP = re.compile(r"([\\`*_\[\]<>|~&$])")
_LINE_START = re.compile(r"^([-+=](?=[-=\s]|$)|#|\d+(?=[.)](?:\s|$)))")


def section(title: str, body: str) -> str:
    """Return a section, or nothing where it has no body."""
    return f"## {title}\n\n{body}" if body else ""


def bullets(title: str, items: Sequence[str]) -> str:
    """Return a section of bullets, or nothing."""
    return section(title, "\n".join(f"- {escape(item)}" for item in items))


def fact_table(facts: Sequence[Fact]) -> str:
    """Return facts as a two-column table, or nothing."""
    if not facts:
        return ""
    return markdown_table(("", ""), [(fact.label, fact.value) for fact in facts])


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with escaped cells."""
    lines = [columns, ["---"] * len(columns)]
    texts = [[escape(text) for text in lines[0]], lines[1]]
    texts += [[escape(cell) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in texts)


def escape(text: str) -> str:
    """Return `text` as Markdown that reads the same, on one line."""
    escaped = _MARKUP.sub(r"\\\1", " ".join(text.split()))
    return _LINE_START.sub(_escape_line_start, escaped)


def fenced(text: str, language: str) -> str:
    """Return a code block whose fence is longer than any run of backticks inside."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _escape_line_start(match: re.Match[str]) -> str:
    """Return a list or heading mark as text; a digit cannot be escaped, its full stop can."""
    mark = match[0]
    return f"{mark}\\" if mark.isdigit() else f"\\{mark}"
