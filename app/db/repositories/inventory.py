"""What rows say about the object store, over all projects, page by page."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import InstrumentedAttribute, Session

from app.db.tables import Artifact, Blob, JobCheckpoint, JobLogChunk, ModelFile, ModelVersion

PAGE = 500


@dataclass(frozen=True, slots=True)
class ExpectedObject:
    """An object that a row speaks of; `sha256` is None for parts of logs."""

    key: str
    size_bytes: int
    sha256: str | None


def expected_blobs(
    session: Session, *, after: tuple[UUID, str] | None
) -> tuple[list[ExpectedObject], tuple[UUID, str] | None]:
    """List stored blobs, and where to go on; None at the end."""
    statement = (
        sa.select(Blob.project_id, Blob.sha256, Blob.storage_key, Blob.size_bytes)
        .where(Blob.state == "stored")
        .order_by(Blob.project_id, Blob.sha256)
        .limit(PAGE)
    )
    if after is not None:
        statement = statement.where(sa.tuple_(Blob.project_id, Blob.sha256) > sa.tuple_(*after))
    rows = session.execute(statement).all()
    found = [ExpectedObject(row.storage_key, row.size_bytes, row.sha256) for row in rows]
    last = (rows[-1].project_id, rows[-1].sha256) if len(rows) == PAGE else None
    return found, last


def expected_logs(
    session: Session, *, after: str | None
) -> tuple[list[ExpectedObject], str | None]:
    """List parts of logs, and where to go on; None at the end."""
    statement = (
        sa.select(JobLogChunk.storage_key, JobLogChunk.byte_size)
        .order_by(JobLogChunk.storage_key)
        .limit(PAGE)
    )
    if after is not None:
        statement = statement.where(JobLogChunk.storage_key > after)
    rows = session.execute(statement).all()
    found = [ExpectedObject(row.storage_key, row.byte_size, None) for row in rows]
    return found, found[-1].key if len(found) == PAGE else None


def is_expected(session: Session, key: str) -> bool:
    """Tell whether a row still speaks of the object as one that is there."""
    blob = sa.exists().where(Blob.storage_key == key, Blob.state == "stored")
    part = sa.exists().where(JobLogChunk.storage_key == key)
    return bool(session.execute(sa.select(sa.or_(blob, part))).scalar_one())


def dangling_references(session: Session) -> Iterator[str]:
    """Name the rows that refer to bytes which are not stored."""
    artifacts = sa.select(Artifact.id).where(
        Artifact.deleted_at.is_(None), ~_is_stored(Artifact.project_id, Artifact.sha256)
    )
    for artifact_id in session.execute(artifacts).scalars():
        yield f"artifact {artifact_id}"
    files = (
        sa.select(ModelFile.model_version_id, ModelFile.path)
        .join(ModelVersion, ModelVersion.id == ModelFile.model_version_id)
        .where(~_is_stored(ModelVersion.project_id, ModelFile.blob_sha256))
    )
    for version_id, path in session.execute(files):
        yield f"file {path} of model version {version_id}"
    arrays_missing = sa.and_(
        JobCheckpoint.arrays_sha256.is_not(None),
        ~_is_stored(JobCheckpoint.project_id, JobCheckpoint.arrays_sha256),
    )
    state_missing = ~_is_stored(JobCheckpoint.project_id, JobCheckpoint.state_sha256)
    points = sa.select(JobCheckpoint.id).where(
        JobCheckpoint.deleted_at.is_(None), sa.or_(state_missing, arrays_missing)
    )
    for point_id in session.execute(points).scalars():
        yield f"checkpoint {point_id}"


def _is_stored(
    project_id: InstrumentedAttribute[UUID], sha256: InstrumentedAttribute[Any]
) -> sa.ColumnElement[bool]:
    return sa.exists().where(
        Blob.project_id == project_id, Blob.sha256 == sha256, Blob.state == "stored"
    )
