"""Write the reference that follows from the code: settings, error codes, OpenAPI document.

`python -m app.cli.reference` writes the files; tests hold the committed ones to it.
"""

import inspect
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from app.api.openapi import render_document
from app.api.problems import all_problems
from app.domain.errors import JobErrorCode
from app.main import create_app
from app.settings import Settings

Property = Mapping[str, Any]

REPOSITORY = Path(__file__).parents[2]
GENERATED = "This page is made from the code by `python -m app.cli.reference`."
SETTINGS_INTRODUCTION = (
    "Settings are environment variables, or lines of a file `.env` in the working directory. They "
    "are read and checked once, at the start of each process. Lists are separated by commas. "
    "`debias config show` prints those in effect, with secrets masked. Keep `.env` out of version "
    "control: it may hold secrets."
)
PROBLEMS_INTRODUCTION = (
    "Errors of the HTTP interface are `application/problem+json` documents (RFC 9457). `code` is "
    "stable; `type` links to `/problems/<code>`; `detail` says what happened; `errors` lists, for "
    "each thing wrong with a body, a JSON pointer, a code and what to do."
)
JOB_CODES_INTRODUCTION = (
    "A job that fails keeps its reason in `error`: `code`, `message`, `hint` with what to do, and "
    "`retryable`. Retryable failures are tried again by the service while attempts are left."
)


def settings_page() -> str:
    """Return docs/settings.md."""
    rows = [
        (f"`DEBIAS_{name.upper()}`", _default(found), _limits(found), found["description"])
        for name, found in Settings.model_json_schema()["properties"].items()
    ]
    return _page(
        "Settings",
        SETTINGS_INTRODUCTION,
        _table(("Variable", "Default", "Allowed", "What it is for"), rows),
    )


def errors_page() -> str:
    """Return docs/errors.md."""
    problems = sorted(all_problems().items(), key=lambda item: (item[1].status, item[0]))
    return _page(
        "Error codes",
        PROBLEMS_INTRODUCTION,
        "## Problems",
        _table(
            ("Status", "Code", "Title", "Meaning"),
            [
                (str(kind.status), f"`{code}`", kind.title, _one_line(inspect.getdoc(kind) or ""))
                for code, kind in problems
            ],
        ),
        "## Why a job failed",
        JOB_CODES_INTRODUCTION,
        _table(
            ("Code", "Meaning"), [(f"`{code}`", code.explanation) for code in sorted(JobErrorCode)]
        ),
    )


def openapi_document() -> str:
    """Return openapi.json: the document of the application with its default settings."""
    return render_document(create_app(Settings(_env_file=None)))


def generated_files() -> dict[str, str]:
    """Return the text of every generated file by its path in the repository."""
    return {
        "docs/settings.md": settings_page(),
        "docs/errors.md": errors_page(),
        "openapi.json": openapi_document(),
    }


def _default(property_: Property) -> str:
    if "default" not in property_:
        return "the user's data directory"
    value = property_["default"]
    if value in (None, []):
        return "unset"
    if isinstance(value, list):
        value = ",".join(value)
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _limits(property_: Property) -> str:
    """Say which values are allowed, beyond the type."""
    if "enum" in property_:
        return ", ".join(f"`{choice}`" for choice in property_["enum"])
    kinds = property_.get("anyOf", [property_])
    signs = (("≥", "minimum"), ("≤", "maximum"))
    bounds = [(sign, kind[key]) for kind in kinds for sign, key in signs if key in kind]
    return ", ".join(f"{sign} {bound:g}" for sign, bound in bounds)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def _page(title: str, *parts: str) -> str:
    return "\n\n".join((f"# {title}", GENERATED, *parts)) + "\n"


def _one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    for name, text in generated_files().items():
        (REPOSITORY / name).write_text(text)
        sys.stdout.write(f"wrote {name}\n")
