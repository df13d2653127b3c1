"""The audit log."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.tables import AuditEntry
from app.domain.audit import AuditActor

# Into the table, not the class: no object of a session is made, which takes most of the time.
_INSERT = sa.insert(cast(sa.Table, AuditEntry.__table__))


@dataclass(frozen=True, slots=True)
class AuditFilters:
    """Which entries to list; an empty filter lets everything through."""

    actions: tuple[str, ...] = ()
    key_id: UUID | None = None
    project_id: UUID | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None

    def apply(self, statement: sa.Select[AuditEntry]) -> sa.Select[AuditEntry]:
        """Add the filters to a statement."""
        if self.actions:
            statement = statement.where(AuditEntry.action.in_(self.actions))
        if self.key_id is not None:
            statement = statement.where(AuditEntry.key_id == self.key_id)
        if self.project_id is not None:
            statement = statement.where(AuditEntry.project_id == self.project_id)
        if self.created_after is not None:
            statement = statement.where(AuditEntry.created_at >= self.created_after)
        if self.created_before is not None:
            statement = statement.where(AuditEntry.created_at < self.created_before)
        return statement


class AuditRepository:
    """Entries of one project. There is no way to change one."""

    def __init__(self, session: Session, project_id: UUID) -> None:
        self._session = session
        self._project_id = project_id

    def add(self, **columns: Any) -> None:
        """Insert an entry."""
        self._session.execute(_INSERT, {"project_id": self._project_id, **columns})

    def page(
        self, filters: AuditFilters, *, before: UUID | None, limit: int
    ) -> Sequence[AuditEntry]:
        """List entries, newest first, starting below the id `before`."""
        statement = sa.select(AuditEntry).where(AuditEntry.project_id == self._project_id)
        if filters.key_id is not None:
            # Which key an operator used is not shown here, and so cannot be asked for either.
            statement = statement.where(AuditEntry.actor != AuditActor.OPERATOR)
        return _page(self._session, filters.apply(statement), before=before, limit=limit)


def page_of_all(
    session: Session, filters: AuditFilters, *, before: UUID | None, limit: int
) -> Sequence[AuditEntry]:
    """List entries of all projects, for the operator."""
    statement = filters.apply(sa.select(AuditEntry))
    return _page(session, statement, before=before, limit=limit)


def _page(
    session: Session, statement: sa.Select[AuditEntry], *, before: UUID | None, limit: int
) -> Sequence[AuditEntry]:
    if before is not None:
        statement = statement.where(AuditEntry.id < before)
    statement = statement.order_by(AuditEntry.id.desc()).limit(limit)
    return session.execute(statement).scalars().all()
