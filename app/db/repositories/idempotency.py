"""Stored answers to keyed requests."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, cast
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from app.db.tables import IdempotencyKey

_TABLE = cast(sa.Table, IdempotencyKey.__table__)


class IdempotencyRepository:
    """Idempotency keys of one project."""

    def __init__(self, session: Session, project_id: UUID) -> None:
        self._session = session
        self._project_id = project_id

    def find(
        self, key: str, *, now: datetime | sa.ColumnElement[datetime]
    ) -> IdempotencyKey | None:
        """Return the stored answer of a key that has not expired."""
        statement = _BY_KEY.where(IdempotencyKey.expires_at > now)
        values = {"project_id": self._project_id, "key": key}
        return self._session.execute(statement, values).scalar_one_or_none()

    def reserve(self, key: str, *, now: datetime, **columns: Any) -> UUID | None:
        """Take a key for this transaction; None when somebody else has it.

        The unique index decides between concurrent first requests: the second waits here until
        the first has committed or rolled back. An expired row gives way.
        """
        columns |= {"created_at": now, "status_code": 0, "response": {}}
        values = {"project_id": self._project_id, "key": key, **columns}
        insert = _RESERVE[self._session.get_bind().dialect.name]
        return self._session.execute(insert, values).scalar_one_or_none()

    def store(self, row_id: UUID, **columns: Any) -> None:
        """Write the answer into a reserved row."""
        values = {"of_project": self._project_id, "row": row_id, **columns}
        self._session.execute(_STORE, values)


_RENEWED = ("id", "created_at", "route", "request_sha256", "status_code", "response", "expires_at")


def _reserve(insert: Callable[[Any], Any]) -> Any:
    statement = insert(_TABLE).values(
        project_id=sa.bindparam("project_id"),
        key=sa.bindparam("key"),
        **{name: sa.bindparam(name) for name in _RENEWED},
    )
    renewed = {name: statement.excluded[name] for name in _RENEWED}
    return statement.on_conflict_do_update(
        index_elements=["project_id", "key"],
        set_=renewed | {"location": None, "resource_id": None},
        where=_TABLE.c.expires_at <= statement.excluded.created_at,
    ).returning(_TABLE.c.id)


# Built once: to build one takes longer than to execute it.
_BY_KEY = sa.select(IdempotencyKey).where(
    IdempotencyKey.project_id == sa.bindparam("project_id"),
    IdempotencyKey.key == sa.bindparam("key"),
)
# Of the table, not of the class: no object of a session has to follow.
_STORE = (
    sa.update(_TABLE)
    .where(_TABLE.c.project_id == sa.bindparam("of_project"), _TABLE.c.id == sa.bindparam("row"))
    .values(
        {
            name: sa.bindparam(name)
            for name in ("status_code", "response", "location", "resource_id")
        }
    )
)
_RESERVE = {"sqlite": _reserve(sqlite.insert), "postgresql": _reserve(postgresql.insert)}
