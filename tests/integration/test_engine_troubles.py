"""Whatever an engine raises, prints or leaves behind, its job ends with the right error."""

import gzip
import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
import sqlalchemy as sa

from app.db.session import Database
from app.db.tables import JobLogChunk
from app.logging import configure_logging
from tests.execution import Workshop, read_attempts, read_job
from tests.fixtures.database import make_project
from workers.attempt.publish import Publisher


@pytest.fixture(autouse=True)
def surroundings() -> Iterator[None]:
    """Log as a worker does, and mend what an engine spoils for the whole process."""
    folder = Path.cwd()
    configure_logging("error", "json")
    with warnings.catch_warnings():
        yield
    os.chdir(folder)


@pytest.fixture
def workshop(database: Database, tmp_path: Path) -> Workshop:
    return Workshop(database, tmp_path)


@pytest.fixture
def project(database: Database) -> UUID:
    return make_project(database)


def log_of(workshop: Workshop, job_id: UUID) -> str:
    """The text of the job's log."""
    statement = sa.select(JobLogChunk).where(
        JobLogChunk.job_id == job_id, JobLogChunk.stream == "log"
    )
    with workshop.database.read() as session:
        chunks = session.execute(statement.order_by(JobLogChunk.n)).scalars().all()
    lines = []
    for chunk in chunks:
        data = gzip.decompress(b"".join(workshop.store.stream(chunk.storage_key))).decode()
        lines += [json.loads(line)["text"] for line in data.splitlines()]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("trouble", "code", "word"),
    [
        ("exception", "internal", "RuntimeError: the fake method raised as asked"),
        ("unprintable", "internal", "UnprintableError"),
        ("unpicklable", "internal", "UnpicklableError"),
        ("odd_message", "internal", "RuntimeError: nul"),
        ("several", "oom_device", "several things went wrong"),
        ("interrupt", "internal", "KeyboardInterrupt"),
        ("system_exit", "internal", "SystemExit"),
        ("generator_exit", "internal", "GeneratorExit"),
        ("recursion", "internal", "RecursionError"),
        ("warning_as_error", "internal", "UserWarning: a harmless word"),
        ("oom_device", "oom_device", "OutOfMemoryError"),
        ("disk_full", "disk_full", "No space left on device"),
    ],
)
def test_an_exception_of_any_kind_fails_the_job_with_its_traceback_in_the_log(
    workshop: Workshop, project: UUID, trouble: str, code: str, word: str
) -> None:
    job_id = workshop.queue(project, trouble=trouble, trouble_step=2)

    workshop.run_next(capture_streams=True)

    job = read_job(workshop.database, job_id)
    assert (job.status, job.error["code"], job.error["phase"]) == ("failed", code, "debiasing")
    assert [attempt.outcome for attempt in read_attempts(workshop.database, job_id)] == ["failed"]
    log = log_of(workshop, job_id)
    assert "Traceback" in log
    assert word in log
    assert "troubles.py" in log


def test_the_traceback_of_a_commit_that_failed_is_in_the_log_too(
    workshop: Workshop, project: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_self: Publisher, *_args: object) -> None:
        raise RuntimeError("the commit failed as asked")

    monkeypatch.setattr(Publisher, "commit", fail)
    job_id = workshop.queue(project)

    workshop.run_next(capture_streams=True)

    assert read_job(workshop.database, job_id).status == "failed"
    assert "RuntimeError: the commit failed as asked" in log_of(workshop, job_id)


def test_every_line_of_a_job_that_succeeds_is_in_the_log(
    workshop: Workshop, project: UUID, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    job_id = workshop.queue(project, log_lines=200)

    workshop.run_next(capture_streams=True)

    assert read_job(workshop.database, job_id).status == "succeeded"
    assert log_of(workshop, job_id).count("fake line ") == 4 * 200


@pytest.mark.parametrize("trouble", ["directory", "thread", "processes", "flood"])
def test_what_an_engine_leaves_behind_does_not_fail_its_job(
    workshop: Workshop, project: UUID, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    monkeypatch.chdir(tmp_path)
    job_id = workshop.queue(project, trouble=trouble)

    workshop.run_next()

    assert read_job(workshop.database, job_id).status == "succeeded"
