"""API keys."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.tables import ApiKey


class KeyRepository:
    """Keys of one project."""

    def __init__(self, session: Session, project_id: UUID) -> None:
        self._session = session
        self._project_id = project_id

    def add(self, **columns: Any) -> ApiKey:
        """Insert a key."""
        key = ApiKey(project_id=self._project_id, **columns)
        self._session.add(key)
        self._session.flush()
        return key

    def get(self, key_id: UUID) -> ApiKey | None:
        """Return a key that is not revoked."""
        statement = self._live().where(ApiKey.id == key_id)
        return self._session.execute(statement).scalar_one_or_none()

    def lock(self, key_id: UUID) -> ApiKey | None:
        """Return a key that is not revoked, its row locked until the end of the transaction."""
        statement = self._live().where(ApiKey.id == key_id).with_for_update(key_share=True)
        return self._session.execute(statement).scalar_one_or_none()

    def scopes_of_others(self, key_id: UUID, *, now: datetime) -> Sequence[list[str]]:
        """List what the other usable keys may do; one that was replaced is about to end."""
        statement = sa.select(ApiKey.scopes).where(
            ApiKey.project_id == self._project_id,
            ApiKey.id != key_id,
            ApiKey.replaced_by_id.is_(None),
            _works(now),
        )
        return self._session.execute(statement).scalars().all()

    def count_working(self, *, now: datetime) -> int:
        """Count the keys that are neither revoked nor expired."""
        statement = sa.select(sa.func.count()).where(
            ApiKey.project_id == self._project_id, _works(now)
        )
        return self._session.execute(statement).scalar_one()

    def replace(self, key_id: UUID, *, by: UUID, expires_at: datetime) -> None:
        """Write that a key was replaced, and until when it still works."""
        self._session.execute(
            sa.update(ApiKey)
            .where(ApiKey.project_id == self._project_id, ApiKey.id == key_id)
            .values(replaced_by_id=by, expires_at=expires_at)
        )

    def page(self, *, before: UUID | None, limit: int) -> Sequence[ApiKey]:
        """List keys that are not revoked, newest first."""
        statement = self._live().order_by(ApiKey.id.desc()).limit(limit)
        if before is not None:
            statement = statement.where(ApiKey.id < before)
        return self._session.execute(statement).scalars().all()

    def revoke(self, key_id: UUID, *, now: datetime) -> bool:
        """Revoke a key; False when there is no such live key."""
        statement = (
            sa.update(ApiKey)
            .where(
                ApiKey.project_id == self._project_id,
                ApiKey.id == key_id,
                ApiKey.revoked_at.is_(None),
            )
            .values(revoked_at=now)
            .returning(ApiKey.id)
        )
        return self._session.execute(statement).scalar_one_or_none() is not None

    def _live(self) -> sa.Select[ApiKey]:
        return sa.select(ApiKey).where(
            ApiKey.project_id == self._project_id, ApiKey.revoked_at.is_(None)
        )


# Built once: every request asks it.
_BY_PREFIX = sa.select(ApiKey).where(ApiKey.prefix == sa.bindparam("prefix"))


def find_key(
    session: Session, prefix: str, *, time: sa.ColumnElement[datetime]
) -> tuple[ApiKey, datetime] | None:
    """Find a key by its prefix, with the present time: the one look-up that has no project yet."""
    statement = _BY_PREFIX.add_columns(time)
    found = session.execute(statement, {"prefix": prefix}).one_or_none()
    return None if found is None else (found[0], found[1])


def live_keys(session: Session, key_ids: Collection[UUID], *, now: datetime) -> set[UUID]:
    """Return those of some keys, of whatever project, that are neither revoked nor expired."""
    statement = sa.select(ApiKey.id).where(ApiKey.id.in_(key_ids), _works(now))
    return set(session.execute(statement).scalars())


def _works(now: datetime) -> sa.ColumnElement[bool]:
    return ApiKey.revoked_at.is_(None) & sa.or_(
        ApiKey.expires_at.is_(None), ApiKey.expires_at > now
    )


def note_key_use(session: Session, key_id: UUID, *, now: datetime) -> None:
    """Record that a key was used."""
    session.execute(sa.update(ApiKey).where(ApiKey.id == key_id).values(last_used_at=now))
