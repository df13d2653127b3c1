"""Declarative base, naming convention, and the columns that tables share."""

from datetime import datetime
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from app.db.types import UtcTime

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """Base of all tables."""

    metadata = sa.MetaData(naming_convention=NAMING)


class Identified:
    """Columns of a table whose rows have an id of their own."""

    id: Mapped[UUID] = mapped_column(sa.Uuid, primary_key=True)
    created_at: Mapped[datetime] = mapped_column(UtcTime)


class Versioned(Identified):
    """Columns of a table whose rows change; `version` is raised by every visible write."""

    updated_at: Mapped[datetime] = mapped_column(UtcTime)
    version: Mapped[int] = mapped_column(sa.Integer, default=1, server_default="1")


class ProjectScoped:
    """Column of a table whose rows belong to one project."""

    project_id: Mapped[UUID] = mapped_column(sa.Uuid, sa.ForeignKey("projects.id"))
