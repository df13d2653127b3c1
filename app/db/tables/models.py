"""Models, their versions, and the blobs that hold the bytes."""

from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base, Identified, ProjectScoped, Versioned
from app.db.types import JsonDocument, Sha256Hex, UtcTime


class Model(Versioned, ProjectScoped, Base):
    """A named model; its versions hold the bytes."""

    __tablename__ = "models"
    __table_args__ = (
        sa.Index(
            "uq_models_live_name",
            "project_id",
            "name",
            unique=True,
            sqlite_where=sa.text("deleted_at IS NULL"),
            postgresql_where=sa.text("deleted_at IS NULL"),
        ),
    )

    name: Mapped[str] = mapped_column(sa.String(63))
    description: Mapped[str | None] = mapped_column(sa.Text)
    labels: Mapped[dict[str, str]] = mapped_column(JsonDocument)
    deleted_at: Mapped[datetime | None] = mapped_column(UtcTime)


class ModelVersion(Identified, ProjectScoped, Base):
    """One fixed set of files. `model_id` is null for a job's output nobody has named."""

    __tablename__ = "model_versions"
    __table_args__ = (
        sa.UniqueConstraint("model_id", "number"),
        sa.UniqueConstraint("project_id", "id"),
        sa.UniqueConstraint("created_by_job_id"),
        sa.CheckConstraint("(model_id IS NULL) = (number IS NULL)", name="numbered_when_named"),
        sa.Index(None, "project_id", "content_sha256"),
    )

    model_id: Mapped[UUID | None] = mapped_column(sa.ForeignKey("models.id"))
    number: Mapped[int | None] = mapped_column(sa.Integer)
    source: Mapped[dict[str, Any]] = mapped_column(JsonDocument)
    model_type: Mapped[str] = mapped_column(sa.String(64))
    architecture: Mapped[str | None] = mapped_column(sa.String(128))
    params: Mapped[int] = mapped_column(sa.BigInteger)
    dtype: Mapped[str | None] = mapped_column(sa.String(16))
    size_bytes: Mapped[int] = mapped_column(sa.BigInteger)
    content_sha256: Mapped[str] = mapped_column(Sha256Hex)
    base_source: Mapped[dict[str, Any] | None] = mapped_column(JsonDocument)
    created_by_job_id: Mapped[UUID | None] = mapped_column(sa.Uuid)


class ModelFile(Base):
    """One file of a version, held by a blob."""

    __tablename__ = "model_files"
    __table_args__ = (sa.Index(None, "blob_sha256"),)

    model_version_id: Mapped[UUID] = mapped_column(
        sa.ForeignKey("model_versions.id"), primary_key=True
    )
    path: Mapped[str] = mapped_column(sa.String(400), primary_key=True)
    blob_sha256: Mapped[str] = mapped_column(Sha256Hex)
    size_bytes: Mapped[int] = mapped_column(sa.BigInteger)


class Blob(ProjectScoped, Base):
    """Bytes in the store, named by their hash, one row per project.

    `deleted` says that the bytes are gone while expired artifacts still name them.
    """

    __tablename__ = "blobs"
    __table_args__ = (
        sa.PrimaryKeyConstraint("project_id", "sha256"),
        sa.CheckConstraint("state IN ('stored', 'deleting', 'deleted')", name="state"),
        sa.Index(None, "last_referenced_at"),
        # What a project holds is summed from the index alone.
        sa.Index(None, "project_id", "state", "size_bytes"),
    )

    sha256: Mapped[str] = mapped_column(Sha256Hex)
    size_bytes: Mapped[int] = mapped_column(sa.BigInteger)
    storage_key: Mapped[str] = mapped_column(sa.String(300))
    state: Mapped[str] = mapped_column(sa.String(24), server_default="stored")
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    last_referenced_at: Mapped[datetime] = mapped_column(UtcTime)
