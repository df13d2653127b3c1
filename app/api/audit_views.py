"""Audit entries as response bodies, and their filters."""

from datetime import UTC
from typing import Any

from app.db.repositories.audit import AuditFilters
from app.db.tables import AuditEntry
from app.domain.audit import AuditAction, AuditActor
from app.domain.errors import Finding, ValidationFailed
from app.domain.ids import IdPrefix, format_id, parse_id
from app.schemas.audit import (
    AuditBody,
    AuditParameters,
    ServiceAuditBody,
    ServiceAuditParameters,
)


def audit_body(row: AuditEntry) -> AuditBody:
    """Show an entry to its project. Which key an operator used is not the project's to know."""
    by_operator = row.actor == AuditActor.OPERATOR
    return AuditBody(**_fields(row) | ({"key_id": None} if by_operator else {}))


def service_audit_body(row: AuditEntry) -> ServiceAuditBody:
    """Show an entry to an operator."""
    return ServiceAuditBody(**_fields(row), project=format_id(IdPrefix.PROJECT, row.project_id))


def read_audit_filters(parameters: AuditParameters) -> AuditFilters:
    """Turn query parameters into filters.

    Raises
    ------
    ValidationFailed
        For an id of another kind.
    """
    after, before = parameters.created_after, parameters.created_before
    project = None
    if isinstance(parameters, ServiceAuditParameters):
        project = _read_id("project", IdPrefix.PROJECT, parameters.project)
    return AuditFilters(
        actions=tuple(parameters.action),
        key_id=_read_id("key_id", IdPrefix.KEY, parameters.key_id),
        created_after=after.astimezone(UTC) if after else None,
        created_before=before.astimezone(UTC) if before else None,
        project_id=project,
    )


def _read_id(name: str, prefix: IdPrefix, text: str | None) -> Any:
    if text is None:
        return None
    value = parse_id(prefix, text)
    if value is None:
        message = f"Give an id such as {prefix}_..."
        raise ValidationFailed(message, findings=[Finding(f"query:{name}", "bad_filter", message)])
    return value


def _fields(row: AuditEntry) -> dict[str, Any]:
    return {
        "id": format_id(IdPrefix.AUDIT, row.id),
        "at": row.created_at,
        "action": AuditAction(row.action),
        "actor": AuditActor(row.actor),
        "key_id": format_id(IdPrefix.KEY, row.key_id) if row.key_id else None,
        "target": row.target,
        "request_id": row.request_id,
        "details": row.details,
    }
