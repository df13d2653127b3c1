"""Stored answers to keyed requests."""

from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from app.db.tables import IdempotencyKey


class IdempotencyRepository:
    """Idempotency keys of one project."""

    def __init__(self, session: Session, project_id: UUID) -> None:
        self._session = session
        self._project_id = project_id

    def find(self, key: str, *, now: datetime) -> IdempotencyKey | None:
        """Return the stored answer of a key that has not expired."""
        statement = sa.select(IdempotencyKey).where(
            IdempotencyKey.project_id == self._project_id,
            IdempotencyKey.key == key,
            IdempotencyKey.expires_at > now,
        )
        return self._session.execute(statement).scalar_one_or_none()

    def reserve(self, key: str, *, now: datetime, **columns: Any) -> UUID | None:
        """Take a key for this transaction; None when somebody else has it.

        The unique index decides between concurrent first requests: the second waits here until
        the first has committed or rolled back. An expired row gives way.
        """
        columns |= {"created_at": now, "status_code": 0, "response": {}}
        is_sqlite = self._session.get_bind().dialect.name == "sqlite"
        insert = sqlite.insert if is_sqlite else postgresql.insert
        statement = (
            insert(IdempotencyKey)
            .values(project_id=self._project_id, key=key, **columns)
            .on_conflict_do_update(
                index_elements=["project_id", "key"],
                set_=columns | {"location": None, "resource_id": None},
                where=IdempotencyKey.expires_at <= now,
            )
            .returning(IdempotencyKey.id)
        )
        return self._session.execute(statement).scalar_one_or_none()

    def store(self, row_id: UUID, **columns: Any) -> None:
        """Write the answer into a reserved row."""
        self._session.execute(
            sa.update(IdempotencyKey)
            .where(IdempotencyKey.project_id == self._project_id, IdempotencyKey.id == row_id)
            .values(**columns)
        )
