"""The INSERT that knows ON CONFLICT, which SQLAlchemy has in each dialect only."""

from typing import Any

from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.orm import Session

from app.db.base import Base


def insert_into(session: Session, table: type[Base]) -> Any:
    """Give the INSERT of the session's database."""
    if session.get_bind().dialect.name == "postgresql":
        return postgresql_insert(table)
    return sqlite_insert(table)
