"""A worker's child waits for a database that is away, before and between its jobs."""

import threading
from pathlib import Path
from uuid import UUID

import pytest
import sqlalchemy as sa

from app.db.session import Database
from tests.execution import Workshop, dispatch_one, read_attempts, read_job
from tests.fixtures.database import make_project
from workers.attempt.services import until_reachable
from workers.disk import Room
from workers.tasks import JobRunner

AWAY = sa.exc.OperationalError("SELECT", {}, Exception("away"))


@pytest.fixture
def workshop(database: Database, tmp_path: Path) -> Workshop:
    return Workshop(database, tmp_path)


def failing_reads(database: Database, times: int, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Let the next transactions of this database fail."""
    left, failed = threading.Semaphore(times), list[None]()
    real = database.engine.raw_connection

    def raw_connection() -> sa.PoolProxiedConnection:
        if left.acquire(blocking=False):
            failed.append(None)
            raise AWAY
        return real()

    monkeypatch.setattr(database.engine, "raw_connection", raw_connection)
    return failed


def test_a_message_received_in_an_outage_is_not_lost(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id: UUID = workshop.queue(make_project(workshop.database))
    dispatched = dispatch_one(workshop.database)
    assert dispatched is not None
    failed = failing_reads(workshop.database, 3, monkeypatch)

    done = JobRunner(workshop.services()).run(*dispatched)

    assert (done, len(failed)) == (True, 3)
    assert read_job(workshop.database, job_id).status == "succeeded"
    assert [attempt.outcome for attempt in read_attempts(workshop.database, job_id)] == [
        "succeeded"
    ]


def test_nobody_waits_for_the_database_once_the_worker_is_gone(workshop: Workshop) -> None:
    def away() -> None:
        raise AWAY

    with pytest.raises(sa.exc.OperationalError):
        until_reachable(away, "test", services=workshop.services(is_orphaned=lambda: True))


def test_a_job_without_room_is_given_back_although_the_database_is_away_at_that_moment(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id: UUID = workshop.queue(make_project(workshop.database))
    dispatched = dispatch_one(workshop.database)
    assert dispatched is not None
    runner = JobRunner(workshop.services(scratch_min_free_bytes=2**60))
    measure = runner._disk.room_for

    def measure_and_lose_the_database(job_bytes: int = 0) -> Room:
        failing_reads(workshop.database, 2, monkeypatch)
        return measure(job_bytes)

    monkeypatch.setattr(runner._disk, "room_for", measure_and_lose_the_database)

    assert runner.run(*dispatched) is False

    job = read_job(workshop.database, job_id)
    assert (job.status, job.dispatched_at) == ("queued", None)
