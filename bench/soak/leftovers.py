"""What a soak leaves behind: rows without bytes, bytes without rows, and files of dead attempts."""

from collections.abc import Iterator
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.base import Base
from app.db.session import Database
from app.db.tables import Artifact, Blob, JobCheckpoint, JobLogChunk, ModelFile
from app.storage.objects import ObjectStore


def find_orphans(database: Database, store: ObjectStore) -> list[str]:
    """Name rows of blobs that nothing refers to, objects without a row, and rows without one."""
    with database.read() as session:
        held = _referred_blobs(session)
        blobs = set(session.execute(sa.select(Blob.project_id, Blob.sha256)).tuples())
        keys = set(session.execute(sa.select(Blob.storage_key)).scalars())
        keys |= set(session.execute(sa.select(JobLogChunk.storage_key)).scalars())
    objects = {found.key for found in store.list("p")}
    return [
        *(f"blob {sha256} has a row that nothing refers to" for _, sha256 in blobs - held),
        *(f"blob {sha256} is referred to and has no row" for _, sha256 in held - blobs),
        *(f"object {key} has no row" for key in objects - keys),
        *(f"object {key} has a row and is not there" for key in keys - objects),
    ]


def left_in_scratch(folder: Path) -> list[str]:
    """Name what attempts left in the scratch folder."""
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def count_rows(database: Database) -> dict[str, int]:
    """Count the rows of every table."""
    with database.read() as session:
        return {
            table.name: session.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
            for table in Base.metadata.sorted_tables
        }


def _referred_blobs(session: Session) -> set[tuple[object, str]]:
    return {(project_id, sha256) for project_id, sha256 in _references(session) if sha256}


def _references(session: Session) -> Iterator[tuple[object, str | None]]:
    artifacts = sa.select(Artifact.project_id, Artifact.sha256)
    yield from session.execute(artifacts.where(Artifact.deleted_at.is_(None))).tuples()
    for column in (JobCheckpoint.state_sha256, JobCheckpoint.arrays_sha256):
        points = sa.select(JobCheckpoint.project_id, column)
        yield from session.execute(points.where(JobCheckpoint.deleted_at.is_(None))).tuples()
    files = sa.select(Blob.project_id, ModelFile.blob_sha256).join(
        Blob, Blob.sha256 == ModelFile.blob_sha256
    )
    yield from session.execute(files).tuples()
