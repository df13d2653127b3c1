"""The audit log: who did what to what, written in the transaction that did it."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from app.db.repositories.audit import AuditFilters, AuditRepository, page_of_all
from app.db.tables import AuditEntry
from app.db.uow import UnitOfWork
from app.domain.audit import AuditAction, AuditActor
from app.domain.clock import unix_ms
from app.domain.ids import new_id


def record(
    u: UnitOfWork,
    action: AuditAction,
    *,
    target: str,
    details: Mapping[str, Any] | None = None,
    project_id: UUID | None = None,
) -> None:
    """Write that the principal of `u` did `action` to `target`, an id or name as users see it.

    An operator's change to another project is written into that one's log: give its
    `project_id`. Details must not hold a secret, nor values that a user may regret to have
    written: names of changed fields are enough.
    """
    principal = u.principal
    owner = project_id or principal.project_id
    AuditRepository(u.session, owner).add(
        id=new_id(unix_ms(u.now)),
        created_at=u.now,
        actor=_actor(u, owner),
        key_id=principal.key_id,
        action=action,
        target=target,
        request_id=u.request_id,
        details=dict(details or {}),
    )


def list_entries(
    u: UnitOfWork, filters: AuditFilters, *, before: UUID | None, limit: int
) -> Sequence[AuditEntry]:
    """List entries of the project, newest first."""
    return u.audit.page(filters, before=before, limit=limit)


def list_entries_of_all(
    u: UnitOfWork, filters: AuditFilters, *, before: UUID | None, limit: int
) -> Sequence[AuditEntry]:
    """List entries of all projects, newest first; only for operators."""
    return page_of_all(u.session, filters, before=before, limit=limit)


def _actor(u: UnitOfWork, owner: UUID) -> AuditActor:
    if u.principal.key_id is None:
        return AuditActor.LOCAL
    return AuditActor.KEY if owner == u.principal.project_id else AuditActor.OPERATOR
