"""Read the filters of the job list."""

import re
from datetime import UTC, datetime
from uuid import UUID

from app.db.repositories.jobs import JobFilters
from app.domain.errors import Finding, ValidationFailed
from app.domain.ids import IdPrefix, parse_id
from app.schemas.base import LABEL_KEY
from app.schemas.jobs import JobListParameters


def read_filters(parameters: JobListParameters) -> JobFilters:
    """Turn query parameters into filters.

    Raises
    ------
    ValidationFailed
        For a label filter without a key, an id of another kind, or a time without zone.
    """
    return JobFilters(
        status=tuple(parameters.status),
        kind=tuple(parameters.kind),
        method=tuple(parameters.method),
        labels=tuple(_label(text) for text in parameters.label),
        model_version_id=_version(parameters.model_version_id),
        created_after=_moment("created_after", parameters.created_after),
        created_before=_moment("created_before", parameters.created_before),
        name_prefix=parameters.q,
    )


def _label(text: str) -> tuple[str, str]:
    key, separator, value = text.partition(":")
    if not separator or not re.fullmatch(LABEL_KEY, key):
        raise _refused("label", "Write a label filter as key:value.")
    return key, value


def _version(text: str | None) -> UUID | None:
    if text is None:
        return None
    value = parse_id(IdPrefix.MODEL_VERSION, text)
    if value is None:
        raise _refused("model_version_id", "Give an id of a model version: mv_...")
    return value


def _moment(name: str, value: datetime | None) -> datetime | None:
    if value is None:
        return None
    if value.tzinfo is None:
        raise _refused(name, "Add the time zone, for example 2026-01-31T12:00:00Z.")
    return value.astimezone(UTC)


def _refused(name: str, message: str) -> ValidationFailed:
    return ValidationFailed(message, findings=[Finding(f"query:{name}", "bad_filter", message)])
