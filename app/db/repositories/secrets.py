"""Encrypted secrets of projects."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.tables import ProjectSecret


class SecretRepository:
    """Secrets of one project, as they are stored: encrypted."""

    def __init__(self, session: Session, project_id: UUID) -> None:
        self._session = session
        self._project_id = project_id

    def get(self, name: str) -> ProjectSecret | None:
        """Return a secret."""
        return self._session.execute(self._own().where(ProjectSecret.name == name)).scalar()

    def all(self) -> Sequence[ProjectSecret]:
        """List the secrets by name."""
        return self._session.execute(self._own().order_by(ProjectSecret.name)).scalars().all()

    def add(self, *, id: UUID, name: str, ciphertext: str, now: datetime) -> ProjectSecret:
        """Insert a secret; whoever calls has locked the project."""
        row = ProjectSecret(
            id=id,
            project_id=self._project_id,
            name=name,
            ciphertext=ciphertext,
            created_at=now,
            updated_at=now,
        )
        self._session.add(row)
        self._session.flush()
        return row

    def change(self, row: ProjectSecret, ciphertext: str, *, now: datetime) -> ProjectSecret:
        """Write another value."""
        self._session.execute(
            sa.update(ProjectSecret)
            .where(ProjectSecret.project_id == self._project_id, ProjectSecret.id == row.id)
            .values(ciphertext=ciphertext, updated_at=now, version=ProjectSecret.version + 1)
        )
        self._session.refresh(row)
        return row

    def delete(self, name: str) -> bool:
        """Delete a secret; False when there is none."""
        statement = (
            sa.delete(ProjectSecret)
            .where(ProjectSecret.project_id == self._project_id, ProjectSecret.name == name)
            .returning(ProjectSecret.id)
        )
        return self._session.execute(statement).scalar_one_or_none() is not None

    def _own(self) -> sa.Select[ProjectSecret]:
        return sa.select(ProjectSecret).where(ProjectSecret.project_id == self._project_id)


def secrets_of_all(session: Session, *, after: UUID | None, limit: int) -> Sequence[ProjectSecret]:
    """List secrets of all projects in the order of their ids: for `debias secrets`."""
    statement = sa.select(ProjectSecret).order_by(ProjectSecret.id).limit(limit)
    if after is not None:
        statement = statement.where(ProjectSecret.id > after)
    return session.execute(statement).scalars().all()


def reseal_secret(session: Session, row: ProjectSecret, ciphertext: str) -> bool:
    """Write the same value under another key; False when somebody changed it meanwhile."""
    statement = (
        sa.update(ProjectSecret)
        .where(ProjectSecret.id == row.id, ProjectSecret.version == row.version)
        .values(ciphertext=ciphertext)
        .returning(ProjectSecret.id)
    )
    return session.execute(statement).scalar_one_or_none() is not None
