"""Threads that store the same bytes again and again, and collectors that take them away."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.repositories.blobs import BlobVanished, confirm_blobs
from app.db.repositories.outputs import NewPoint, insert_point
from app.db.session import Database
from app.db.tables import Job, JobCheckpoint
from app.dispatch.gc.step import Round
from app.dispatch.gc.stored import DeadBlobs
from app.domain.retention import Horizon
from app.storage.objects import ObjectStore, open_store
from tests.contract.test_object_stores import open_s3
from tests.execution import TIMING, add_worker, claim_next, queue_job
from tests.fixtures.database import make_project
from tests.retention import NO_GRACE
from workers.attempt.journal import Journal
from workers.attempt.patient_store import PatientStore
from workers.attempt.services import project_key
from workers.heartbeat import StopSwitch

WRITERS, COLLECTORS = 3, 2
# So often must the bytes have been taken away from under the writers.
DELETIONS = 8
LONGEST_S = 60.0


@pytest.fixture(params=["files", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "files":
        return open_store((tmp_path / "objects").as_uri())
    bucket = request.getfixturevalue("s3_bucket")
    return open_s3(request.getfixturevalue("s3_server"), bucket)


class Writer:
    """One attempt that stores a file, refers to it, and forgets it."""

    def __init__(self, database: Database, store: ObjectStore, project: UUID, path: Path) -> None:
        queue_job(database, project)
        claimed = claim_next(database, add_worker(database), lease_ttl_s=3600)
        self._database, self._store, self._path = database, store, path
        self._journal = Journal(database, claimed, TIMING)
        switch = StopSwitch(database.clock)
        self._storage = PatientStore(store, project_key(project), switch, journal=self._journal)

    def run(self, meeting: "Meeting") -> None:
        while not meeting.is_over():
            self._round()

    def _round(self) -> None:
        blob = self._storage.keep(self._path, "file")

        def refer(session: Session, job: Job, now: datetime) -> None:
            confirm_blobs(session, job.project_id, [blob], now=now)
            insert_point(session, job, NewPoint("debiasing", 1, blob, None, "1"), now=now)

        def forget(session: Session, job: Job, _now: datetime) -> None:
            session.execute(sa.delete(JobCheckpoint).where(JobCheckpoint.job_id == job.id))

        try:
            self._journal.write(refer)
        except BlobVanished:
            return  # nothing refers to it
        assert b"".join(self._store.stream(blob.key)) == self._path.read_bytes()
        self._journal.write(forget)


class Meeting:
    """How often the collectors were faster, until it was often enough."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends_at = time.monotonic() + LONGEST_S
        self.deletions = 0

    def note(self, deletions: int) -> None:
        with self._lock:
            self.deletions += deletions

    def is_over(self) -> bool:
        return self.deletions >= DELETIONS or time.monotonic() > self._ends_at


def collect(database: Database, store: ObjectStore, meeting: Meeting) -> None:
    """Collect blobs as if no attempt were alive: only marks and comparisons protect the bytes."""
    while not meeting.is_over():
        with database.read() as session:
            now = database.now(session)
        horizon = Horizon.at(now, NO_GRACE, oldest_attempt=None)
        for freed in DeadBlobs().collect(Round(database, store, horizon, ())):
            meeting.note(freed.rows)


def test_no_row_ever_refers_to_bytes_that_are_gone(
    database: Database, store: ObjectStore, tmp_path: Path
) -> None:
    project = make_project(database)
    path = tmp_path / "file"
    path.write_bytes(b"the same bytes" * 1000)
    writers = [Writer(database, store, project, path) for _ in range(WRITERS)]
    meeting = Meeting()
    with ThreadPoolExecutor(WRITERS + COLLECTORS) as pool:
        jobs = [pool.submit(writer.run, meeting) for writer in writers]
        jobs += [pool.submit(collect, database, store, meeting) for _ in range(COLLECTORS)]
        for job in jobs:
            job.result()

    assert meeting.deletions >= DELETIONS
