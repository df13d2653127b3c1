"""The rows of stored bytes, shared by those who write bytes and the collector that deletes them.

A blob is `stored`, then `deleting` while its bytes go, then `deleted` if expired artifacts still
name it, then no row. Each step is a compare-and-set on state and key. Whoever wants to refer to
bytes renews their row first and, in the transaction that refers to them, confirms it: so nothing
comes to refer to bytes that are going.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import InstrumentedAttribute, Session

from app.db.repositories.upsert import insert_into
from app.db.tables import (
    Artifact,
    Blob,
    JobCheckpoint,
    JobLogChunk,
    ModelFile,
    ModelVersion,
)
from app.domain.errors import Gone

Condition = sa.ColumnElement[bool]
JobCondition = Callable[[InstrumentedAttribute[Any]], Condition]
"""Says something of the job whose id a column holds."""


class BlobVanished(Gone):
    """Bytes that were stored for an output were deleted before anything referred to them."""


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """Bytes that lie in the store."""

    sha256: str
    size_bytes: int
    key: str


@dataclass(frozen=True, slots=True)
class DyingBlob:
    """A blob whose bytes are to be deleted."""

    project_id: UUID
    sha256: str
    size_bytes: int
    key: str


def renew_blob(
    session: Session, project_id: UUID, sha256: str, *, now: datetime
) -> StoredBlob | None:
    """Keep the bytes from being collected for a while; None where they are not stored."""
    row = session.execute(
        sa.update(Blob)
        .where(Blob.project_id == project_id, Blob.sha256 == sha256, Blob.state == "stored")
        .values(last_referenced_at=now)
        .returning(Blob.sha256, Blob.size_bytes, Blob.storage_key)
    ).one_or_none()
    return None if row is None else StoredBlob(*row)


def record_blob(
    session: Session,
    project_id: UUID,
    blob: StoredBlob,
    *,
    now: datetime,
    instead_of: str | None = None,
) -> StoredBlob:
    """Note an upload, and give the one that counts: another writer may have been faster.

    An upload takes the place of one that is being deleted, and of the one with the key
    `instead_of`, whose bytes were found to be missing.
    """
    statement = insert_into(session, Blob).values(
        project_id=project_id,
        sha256=blob.sha256,
        size_bytes=blob.size_bytes,
        storage_key=blob.key,
        created_at=now,
        last_referenced_at=now,
    )
    new: dict[str, Any] = {
        "state": "stored",
        "storage_key": blob.key,
        "size_bytes": blob.size_bytes,
        "created_at": now,
    }
    replaceable = Blob.state != "stored"
    if instead_of is not None:
        replaceable = sa.or_(replaceable, Blob.storage_key == instead_of)
    session.execute(
        statement.on_conflict_do_update(
            index_elements=["project_id", "sha256"], set_=new, where=replaceable
        )
    )
    # The statement above has locked the row in any case: it is still there, and stored.
    kept = renew_blob(session, project_id, blob.sha256, now=now)
    assert kept is not None  # noqa: S101 - locked
    return kept


def confirm_blobs(
    session: Session, project_id: UUID, blobs: Sequence[StoredBlob], *, now: datetime
) -> None:
    """Make sure, before rows refer to them, that these bytes are stored and stay.

    Raises
    ------
    BlobVanished
        When some are not; the caller's transaction must not be committed.
    """
    # In one order everywhere: two jobs that store the same bytes must not lock each other out.
    for _, blob in sorted({blob.sha256: blob for blob in blobs}.items()):
        found = renew_blob(session, project_id, blob.sha256, now=now)
        if found is None or found.key != blob.key:
            raise BlobVanished(f"Stored bytes are gone again: SHA-256 {blob.sha256}.")


def blob_key_of(session: Session, project_id: UUID, sha256: str) -> str | None:
    """Say where bytes of a project lie; None where they are not stored."""
    statement = sa.select(Blob.storage_key).where(
        Blob.project_id == project_id, Blob.sha256 == sha256, Blob.state == "stored"
    )
    return session.execute(statement).scalar_one_or_none()


def unreferenced(released: JobCondition | None = None) -> Condition:
    """Write the condition that nothing needs the bytes of a blob.

    `released` tells of jobs, by id, whose outputs no longer count.
    """

    def counts(job_id: InstrumentedAttribute[Any], *needed: Condition) -> Condition:
        return sa.true() if released is None else ~sa.and_(released(job_id), *needed)

    artifact = sa.exists().where(
        Artifact.project_id == Blob.project_id,
        Artifact.sha256 == Blob.sha256,
        Artifact.deleted_at.is_(None),
        counts(Artifact.job_id),
    )
    file = (
        sa.exists()
        .where(
            ModelFile.blob_sha256 == Blob.sha256,
            ModelVersion.id == ModelFile.model_version_id,
            ModelVersion.project_id == Blob.project_id,
            counts(ModelVersion.created_by_job_id, ModelVersion.model_id.is_(None)),
        )
        .correlate(Blob)
    )
    live = sa.and_(JobCheckpoint.deleted_at.is_(None), counts(JobCheckpoint.job_id))
    return sa.and_(~artifact, ~file, ~_checkpoint(live))


def find_dead(session: Session, *, before: datetime, limit: int) -> list[tuple[UUID, str]]:
    """Find blobs that nothing refers to and nobody has renewed since `before`.

    It goes through all blobs: on SQLite, everybody would wait for that in a writing transaction
    (3 s with 200,000 of them).
    """
    rows = session.execute(_dead(before).limit(limit))
    return [(project_id, sha256) for project_id, sha256 in rows]


def mark_deleting(
    session: Session, candidates: Sequence[tuple[UUID, str]], *, before: datetime
) -> int:
    """Mark those of the blobs, by project and SHA-256, that are dead still; count them."""
    row = sa.tuple_(Blob.project_id, Blob.sha256)
    dead = _dead(before).where(row.in_(candidates)).with_for_update(skip_locked=True)
    keys = session.execute(dead).all()
    for project_id, sha256 in keys:
        session.execute(_row(project_id, sha256).values(state="deleting"))
    return len(keys)


def list_dying(session: Session, *, limit: int) -> list[DyingBlob]:
    """List blobs that are marked, those too that a collector was killed over."""
    statement = (
        sa.select(Blob.project_id, Blob.sha256, Blob.size_bytes, Blob.storage_key)
        .where(Blob.state == "deleting")
        .order_by(Blob.project_id, Blob.sha256)
        .limit(limit)
    )
    return [DyingBlob(*row) for row in session.execute(statement)]


def finish_deleting(session: Session, blob: DyingBlob) -> bool:
    """Note that the bytes are gone; False when somebody has stored them anew meanwhile."""
    done = session.execute(
        _row(blob.project_id, blob.sha256)
        .where(Blob.state == "deleting", Blob.storage_key == blob.key)
        .values(state="deleted")
        .returning(Blob.sha256)
    ).scalar_one_or_none()
    if done is not None:
        forget_deleted(session, only=blob)
    return done is not None


def forget_deleted(session: Session, *, only: DyingBlob | None = None) -> int:
    """Delete the rows of deleted bytes that no row names any more; count them."""
    named = sa.exists().where(
        Artifact.project_id == Blob.project_id, Artifact.sha256 == Blob.sha256
    )
    statement = sa.delete(Blob).where(Blob.state == "deleted", ~named, ~_checkpoint(sa.true()))
    if only is not None:
        statement = statement.where(Blob.project_id == only.project_id, Blob.sha256 == only.sha256)
    return len(session.execute(statement.returning(Blob.sha256)).all())


def count_dying(session: Session, *, before: datetime, released: JobCondition) -> tuple[int, int]:
    """Count the blobs, and their bytes, that a run would delete."""
    dead = sa.and_(
        Blob.state == "stored",
        Blob.last_referenced_at < before,
        unreferenced(released),
    )
    statement = sa.select(sa.func.count(), sa.func.sum(Blob.size_bytes)).where(
        sa.or_(dead, Blob.state == "deleting")
    )
    rows, size_bytes = session.execute(statement).one()
    return rows, int(size_bytes or 0)


def known_keys(session: Session, addresses: Sequence[tuple[UUID, str]]) -> set[str]:
    """Give the keys of the uploads that rows speak of, among blobs by project and SHA-256."""
    row = sa.tuple_(Blob.project_id, Blob.sha256)
    statement = sa.select(Blob.storage_key).where(
        row.in_(addresses), Blob.state.in_(("stored", "deleting"))
    )
    return set(session.execute(statement).scalars())


def known_log_keys(session: Session, job_ids: Sequence[UUID]) -> set[str]:
    """Give the keys of all parts of the logs of these jobs."""
    statement = sa.select(JobLogChunk.storage_key).where(JobLogChunk.job_id.in_(job_ids))
    return set(session.execute(statement).scalars())


def _dead(before: datetime) -> sa.Select[UUID, str]:
    return (
        sa.select(Blob.project_id, Blob.sha256)
        .where(Blob.state == "stored", Blob.last_referenced_at < before, unreferenced())
        .order_by(Blob.project_id, Blob.sha256)
    )


def _checkpoint(counts: Condition) -> Condition:
    return sa.exists().where(
        JobCheckpoint.project_id == Blob.project_id,
        sa.or_(
            JobCheckpoint.state_sha256 == Blob.sha256, JobCheckpoint.arrays_sha256 == Blob.sha256
        ),
        counts,
    )


def _row(project_id: UUID, sha256: str) -> sa.Update:
    return sa.update(Blob).where(Blob.project_id == project_id, Blob.sha256 == sha256)
