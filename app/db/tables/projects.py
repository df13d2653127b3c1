"""Projects, with their keys, secrets, audit log and repeated requests."""

from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base, Identified, ProjectScoped, Versioned
from app.db.types import JsonDocument, Sha256Hex, UtcTime


class Project(Versioned, Base):
    """A tenant: everything but the worker list belongs to exactly one."""

    __tablename__ = "projects"
    __table_args__ = (sa.UniqueConstraint("name"), sa.CheckConstraint("weight > 0", name="weight"))

    name: Mapped[str] = mapped_column(sa.String(63))
    weight: Mapped[float] = mapped_column(sa.Float, server_default="1")
    max_running: Mapped[int] = mapped_column(sa.Integer, server_default="16")
    max_queued: Mapped[int] = mapped_column(sa.Integer, server_default="100")
    suspended: Mapped[bool] = mapped_column(sa.Boolean, server_default=sa.false())
    max_storage_bytes: Mapped[int | None] = mapped_column(sa.BigInteger)
    max_gpu_s_per_day: Mapped[int | None] = mapped_column(sa.Integer)
    retention_days: Mapped[int] = mapped_column(sa.Integer, server_default="90")


class ApiKey(Identified, ProjectScoped, Base):
    """A key: its prefix finds the row, its SHA-256 proves the secret."""

    __tablename__ = "api_keys"
    __table_args__ = (sa.UniqueConstraint("prefix"), sa.Index(None, "project_id", "id"))

    name: Mapped[str] = mapped_column(sa.String(100))
    prefix: Mapped[str] = mapped_column(sa.String(8))
    secret_sha256: Mapped[str] = mapped_column(Sha256Hex)
    scopes: Mapped[list[str]] = mapped_column(JsonDocument)
    expires_at: Mapped[datetime | None] = mapped_column(UtcTime)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcTime)
    last_used_at: Mapped[datetime | None] = mapped_column(UtcTime)
    replaced_by_id: Mapped[UUID | None] = mapped_column(sa.Uuid)


class ProjectSecret(Versioned, ProjectScoped, Base):
    """A secret of a project, encrypted under the service's secret key."""

    __tablename__ = "project_secrets"
    __table_args__ = (sa.UniqueConstraint("project_id", "name"),)

    name: Mapped[str] = mapped_column(sa.String(63))
    ciphertext: Mapped[str] = mapped_column(sa.Text)


class AuditEntry(Identified, ProjectScoped, Base):
    """Who did what to what, written in the transaction that did it. Never changed afterwards."""

    __tablename__ = "audit_log"
    __table_args__ = (sa.Index(None, "project_id", "id"),)

    actor: Mapped[str] = mapped_column(sa.String(100))
    key_id: Mapped[UUID | None] = mapped_column(sa.Uuid)
    action: Mapped[str] = mapped_column(sa.String(64))
    target: Mapped[str | None] = mapped_column(sa.String(200))
    request_id: Mapped[str | None] = mapped_column(sa.String(128))
    details: Mapped[dict[str, Any]] = mapped_column(JsonDocument)


class IdempotencyKey(Identified, ProjectScoped, Base):
    """The stored answer to a keyed request, written with the resource it made."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (sa.UniqueConstraint("project_id", "key"), sa.Index(None, "expires_at"))

    key: Mapped[str] = mapped_column(sa.String(255))
    route: Mapped[str] = mapped_column(sa.String(100))
    request_sha256: Mapped[str] = mapped_column(Sha256Hex)
    status_code: Mapped[int] = mapped_column(sa.Integer)
    response: Mapped[dict[str, Any]] = mapped_column(JsonDocument)
    location: Mapped[str | None] = mapped_column(sa.String(200))
    resource_id: Mapped[UUID | None] = mapped_column(sa.Uuid)
    expires_at: Mapped[datetime] = mapped_column(UtcTime)
