"""Finished jobs of any age, and what is left of them, for tests of retention."""

import os
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

import sqlalchemy as sa

from app.db.session import Database
from app.db.tables import Artifact, Blob, Job
from app.dispatch.gc.collector import Collector
from app.domain.retention import RetentionPeriods
from app.services.store_check import check_store
from app.storage.objects import ObjectStore
from tests.execution import Workshop

DAY = timedelta(days=1)
NO_GRACE = RetentionPeriods(grace=timedelta(0))


def collector(database: Database, store: ObjectStore) -> Collector:
    """A collector that waits for no grace."""
    return Collector(database, store, periods=NO_GRACE)


def age(database: Database, job_id: UUID, days: float) -> None:
    """Let a finished job have ended earlier than it did, and the bytes of its project be as old."""
    by = timedelta(days=days)
    with database.write() as session:
        job = session.get_one(Job, job_id)
        assert job.finished_at is not None
        job.finished_at -= by
        if job.deleted_at is not None:
            job.deleted_at -= by
        blobs = sa.select(Blob).where(Blob.project_id == job.project_id)
        for blob in session.execute(blobs).scalars():
            blob.last_referenced_at -= by


def backdate(folder: Path, moment: datetime) -> None:
    """Give all files and folders below this modification time."""
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (moment.timestamp(),) * 2)


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def bytes_below(folder: Path) -> int:
    """Bytes that the disk gives to what lies below, as `du` counts them."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))


def artifacts_of(database: Database, job_id: UUID) -> list[Artifact]:
    with database.read() as session:
        statement = sa.select(Artifact).where(Artifact.job_id == job_id).order_by(Artifact.name)
        return list(session.execute(statement).scalars())


def blob_states(database: Database) -> Iterator[str]:
    with database.read() as session:
        yield from session.execute(sa.select(Blob.state)).scalars()


def faults_of(workshop: Workshop) -> list[str]:
    """Rows without bytes and bytes without rows, digests compared."""
    found = check_store(workshop.database, workshop.store, digests=True, grace=NO_GRACE.grace)
    return [*found.broken, *found.orphans]
