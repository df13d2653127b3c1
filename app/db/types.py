"""Column types that behave the same on SQLite and PostgreSQL."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

STATUS_LENGTH = 24

JsonDocument = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
"""JSON text on SQLite, JSONB on PostgreSQL. Python None is SQL NULL."""

Sha256Hex = sa.String(64)


class UtcTime(TypeDecorator[datetime]):
    """A moment in UTC: timestamptz on PostgreSQL, sortable ISO text on SQLite."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Use text on SQLite, which has no time type."""
        if dialect.name == "sqlite":
            return dialect.type_descriptor(sa.String(27))
        return dialect.type_descriptor(sa.DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """Refuse naive times; write microseconds always, so that text order is time order."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("naive datetime: the database stores moments in UTC")
        moment = value.astimezone(UTC)
        if dialect.name == "sqlite":
            return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
        return moment

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """Give an aware UTC time on both databases."""
        if value is None:
            return None
        if dialect.name == "sqlite":
            return datetime.fromisoformat(value)
        return value.astimezone(UTC)  # type: ignore[no-any-return]


def one_of(column: str, values: type[StrEnum]) -> str:
    """Write the CHECK that holds an enum column to its values."""
    listed = ", ".join(f"'{value}'" for value in values)
    return f"{column} IN ({listed})"
