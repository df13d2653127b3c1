"""The outbox and the workers."""

from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base, Identified
from app.db.types import STATUS_LENGTH, JsonDocument, UtcTime

_UNPUBLISHED = sa.text("published_at IS NULL")


class OutboxMessage(Identified, Base):
    """A side effect to be done, written in the transaction of the change that asks for it."""

    __tablename__ = "outbox"
    __table_args__ = (
        sa.Index(
            "ix_outbox_due",
            "available_at",
            sqlite_where=_UNPUBLISHED,
            postgresql_where=_UNPUBLISHED,
        ),
    )

    topic: Mapped[str] = mapped_column(sa.String(32))
    aggregate_id: Mapped[UUID] = mapped_column(sa.Uuid)
    payload: Mapped[dict[str, Any]] = mapped_column(JsonDocument)
    available_at: Mapped[datetime] = mapped_column(UtcTime)
    attempts: Mapped[int] = mapped_column(sa.Integer, server_default="0")
    published_at: Mapped[datetime | None] = mapped_column(UtcTime)
    last_error: Mapped[str | None] = mapped_column(sa.Text)


class Worker(Identified, Base):
    """One device slot, as its worker last described it. Workers serve all projects."""

    __tablename__ = "workers"
    __table_args__ = (
        sa.CheckConstraint("state IN ('ready', 'draining', 'stopped', 'lost')", name="state"),
        sa.Index(None, "last_seen_at"),
    )

    host: Mapped[str] = mapped_column(sa.String(255))
    boot_id: Mapped[str] = mapped_column(sa.String(64))
    pid: Mapped[int] = mapped_column(sa.Integer)
    classes: Mapped[list[str]] = mapped_column(JsonDocument)
    device: Mapped[str] = mapped_column(sa.String(64))
    gpu_bytes: Mapped[int | None] = mapped_column(sa.BigInteger)
    host_bytes: Mapped[int | None] = mapped_column(sa.BigInteger)
    disk_free_bytes: Mapped[int | None] = mapped_column(sa.BigInteger)
    disk_low: Mapped[bool] = mapped_column(sa.Boolean, server_default=sa.false())
    versions: Mapped[dict[str, Any]] = mapped_column(JsonDocument)
    state: Mapped[str] = mapped_column(sa.String(STATUS_LENGTH))
    drain_requested: Mapped[bool] = mapped_column(sa.Boolean, server_default=sa.false())
    current_job_id: Mapped[UUID | None] = mapped_column(sa.Uuid)
    last_seen_at: Mapped[datetime] = mapped_column(UtcTime)


class Tally(Base):
    """How many ended jobs or attempts there were whose rows are gone; see the repository."""

    __tablename__ = "tallies"

    kind: Mapped[str] = mapped_column(sa.String(16), primary_key=True)
    method: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    outcome: Mapped[str] = mapped_column(sa.String(STATUS_LENGTH), primary_key=True)
    error: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    count: Mapped[int] = mapped_column(sa.BigInteger)
