"""A project's storage quota holds at the moment that a job's files become the project's."""

import threading
from pathlib import Path
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.repositories.blobs import StoredBlob
from app.db.repositories.projects import ProjectRepository
from app.db.session import Database
from app.db.tables import Artifact, Job, Project
from app.domain.errors import JobErrorCode, JobFailure
from app.storage.objects import ObjectStore
from tests.execution import Workshop, queue_job, read_attempts, read_job
from tests.fixtures.database import make_project
from workers.attempt.storage_quota import hold_blob

# Reports and checkpoints hold ids and times, whose lengths differ from job to job.
SLACK = 2_000


@pytest.fixture
def shop(database: Database, tmp_path: Path) -> Workshop:
    return Workshop(database, tmp_path)


def stored(database: Database, project: UUID) -> int:
    with database.read() as session:
        return ProjectRepository(session, project).stored_bytes()


def limit(database: Database, project: UUID, max_storage_bytes: int) -> None:
    with database.write() as session:
        session.execute(
            sa.update(Project)
            .where(Project.id == project)
            .values(max_storage_bytes=max_storage_bytes)
        )


def store_files(shop: Workshop) -> list[Path]:
    return [path for path in (shop.folder / "objects").rglob("*") if path.is_file()]


def test_a_result_that_does_not_fit_fails_the_job_for_good_and_says_why(
    database: Database, shop: Workshop
) -> None:
    project = make_project(database, max_storage_bytes=20_000)
    job_id = shop.queue(project, output_bytes=50_000, checkpoint_every=0)

    shop.run_next()

    job = read_job(database, job_id)
    assert (job.status, job.failures, len(read_attempts(database, job_id))) == ("failed", 1, 1)
    assert (job.error["code"], job.error["retryable"]) == ("quota_exceeded", False)
    assert "max_storage_bytes" in job.error["message"]
    assert "20000" in job.error["message"]
    assert "Delete jobs" in job.error["hint"]
    assert job.error["fields"]["limit"] == 20_000
    with database.read() as session:
        assert session.execute(sa.select(Artifact)).first() is None
    assert stored(database, project) <= 20_000


def test_bytes_that_will_not_fit_are_not_even_sent_to_the_store(
    database: Database, shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = type(shop.store)
    put_file, sent = kind.put_file, []

    def put_and_note(store: ObjectStore, key: str, path: Path) -> None:
        sent.append(path.stat().st_size)
        put_file(store, key, path)

    monkeypatch.setattr(kind, "put_file", put_and_note)
    shop.queue(make_project(database), output_bytes=50_000, checkpoint_every=0)
    shop.run_next()
    without_limit = max(sent)
    sent.clear()
    shop.queue(
        make_project(database, max_storage_bytes=20_000), output_bytes=50_000, checkpoint_every=0
    )

    shop.run_next()

    assert without_limit > 50_000
    assert all(size < 50_000 for size in sent)


def test_a_result_fits_up_to_the_last_byte(database: Database, shop: Workshop) -> None:
    trial = make_project(database)
    shop.queue(trial, output_bytes=50_000)
    shop.run_next()
    needed = stored(database, trial)
    exact, short = make_project(database), make_project(database)
    limit(database, exact, needed + SLACK)
    limit(database, short, needed - SLACK)
    fits, fails = shop.queue(exact, output_bytes=50_000), shop.queue(short, output_bytes=50_000)

    shop.run_next()
    shop.run_next()

    assert read_job(database, fits).status == "succeeded"
    assert read_job(database, fails).error["code"] == "quota_exceeded"
    assert stored(database, exact) <= needed + SLACK
    assert stored(database, short) <= needed - SLACK


def test_bytes_that_the_project_holds_already_need_no_room(
    database: Database, shop: Workshop
) -> None:
    project = make_project(database)
    shop.queue(project, output_bytes=50_000)
    shop.run_next()
    limit(database, project, stored(database, project) + 40_000)
    again = shop.queue(project, output_bytes=50_000)

    shop.run_next()

    assert read_job(database, again).status == "succeeded"


def test_two_jobs_that_end_at_once_cannot_share_the_last_gap(database: Database) -> None:
    project = make_project(database, max_storage_bytes=90)
    jobs = [queue_job(database, project) for _ in range(2)]
    first_has_written, second_asks = threading.Event(), threading.Event()
    refused: list[JobFailure] = []

    def hold(session: Session, job_id: UUID, digit: str) -> None:
        job = session.get_one(Job, job_id)
        blob = StoredBlob(digit * 64, 60, f"p/{digit}")
        hold_blob(session, job, blob, instead_of=None, now=database.now(session))

    def hold_second() -> None:
        first_has_written.wait(30)
        second_asks.set()
        try:
            with database.write() as session:
                hold(session, jobs[1], "b")
        except JobFailure as exc:
            refused.append(exc)

    second = threading.Thread(target=hold_second)
    second.start()
    with database.write() as session:
        hold(session, jobs[0], "a")
        first_has_written.set()
        second_asks.wait(30)
        second.join(0.3)  # has to wait for this transaction; without the lock it would not
    second.join(30)

    assert [failure.code for failure in refused] == [JobErrorCode.QUOTA_EXCEEDED]
    assert refused[0].fields == {
        "quota": "max_storage_bytes",
        "limit": 90,
        "used": 60,
        "needed": 60,
    }
    assert stored(database, project) == 60


def test_a_checkpoint_that_does_not_fit_fails_the_job(database: Database, shop: Workshop) -> None:
    project = make_project(database, max_storage_bytes=10)
    job_id = shop.queue(project, checkpoint_every=1)

    shop.run_next()

    assert read_job(database, job_id).error["code"] == "quota_exceeded"
    assert (stored(database, project), store_files(shop)) == (0, [])
