"""What an attempt does while the store, the database or the disk is away for a while."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa

from app.db.repositories.execution import WorkerIdentity
from app.db.session import Database
from app.db.tables import Artifact, Job
from app.dispatch.dispatcher import Dispatcher
from app.domain.errors import JobErrorCode, JobFailure, StorageUnavailable
from app.domain.text import MESSAGE_LIMIT
from app.storage.objects import ObjectStore
from tests.execution import (
    TIMING,
    RecordingBroker,
    Workshop,
    add_worker,
    claim_next,
    queue_job,
    read_attempts,
    read_events,
    read_job,
)
from tests.fixtures.database import make_project
from workers.attempt import journal, patient_store
from workers.attempt.log_shipping import LogShipper
from workers.attempt.publish import Publisher
from workers.runtime.context import Context, PhaseOutput
from workers.slot import SlotFacts, WorkerSlot, open_parent_database
from workers.testkit.fake_method import Engine


@pytest.fixture
def workshop(database: Database, tmp_path: Path) -> Workshop:
    return Workshop(database, tmp_path)


@pytest.fixture
def project(database: Database) -> UUID:
    return make_project(database)


@dataclass
class AwayStore:
    """A store that refuses the first `refusals` writes."""

    real: ObjectStore
    refusals: int

    def put_file(self, key: str, path: Path) -> None:
        if self.refusals > 0:
            self.refusals -= 1
            raise StorageUnavailable("away")
        self.real.put_file(key, path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patient_store, "FIRST_PAUSE_S", 0.0)


@pytest.mark.usefixtures("no_pauses")
def test_a_store_that_comes_back_in_time_costs_no_attempt(
    workshop: Workshop, project: UUID
) -> None:
    job_id = workshop.queue(project)
    store = AwayStore(workshop.store, refusals=patient_store.TRIES - 1)

    workshop.run_next(store=store)

    job = read_job(workshop.database, job_id)
    assert (job.status, job.attempt, store.refusals) == ("succeeded", 1, 0)


@pytest.mark.usefixtures("no_pauses")
def test_a_checkpoint_that_cannot_be_stored_is_tried_again_by_the_next_attempt(
    workshop: Workshop, project: UUID
) -> None:
    job_id = workshop.queue(project)

    workshop.run_next(store=AwayStore(workshop.store, refusals=patient_store.TRIES))
    after_outage = read_job(workshop.database, job_id)
    workshop.run_next()

    assert (after_outage.status, after_outage.error["code"]) == ("queued", "upload_failed")
    assert read_job(workshop.database, job_id).status == "succeeded"


def test_an_attempt_that_has_to_stop_does_not_wait_for_the_store(
    workshop: Workshop, project: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patient_store, "FIRST_PAUSE_S", 3600.0)
    job_id = workshop.queue(project)

    workshop.run_next(store=AwayStore(workshop.store, refusals=10**6), is_orphaned=lambda: True)

    assert [a.outcome for a in read_attempts(workshop.database, job_id)] == ["drained"]


def fail_once_late(workshop: Workshop, project: UUID) -> UUID:
    """Run a job up to a failure after its first evaluation, which is then stored."""
    job_id = workshop.queue(
        project, trouble="fail", trouble_times=1, trouble_step=2, fail_retryable=True
    )
    workshop.run_next()
    return job_id


def test_a_stored_phase_whose_bytes_are_gone_is_repeated_and_said_so(
    workshop: Workshop, project: UUID
) -> None:
    job_id = fail_once_late(workshop, project)
    shutil.rmtree(workshop.folder / "objects")
    (workshop.folder / "objects").mkdir()

    for _ in range(2):  # the counted failures are among what is gone
        workshop.run_next()

    events = read_events(workshop.database, job_id)
    warned = [event.data["code"] for event in events if event.type == "job.warning"]
    assert "checkpoint_unreadable" in warned
    assert read_job(workshop.database, job_id).status == "succeeded"


def test_a_database_that_is_away_when_stored_phases_are_looked_up_costs_nothing(
    workshop: Workshop, project: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = workshop.queue(project)
    read, failures = journal.Journal.read, iter([True, True])

    def read_later(self: journal.Journal, action: Callable[[Any], Any]) -> Any:
        def broken(session: Any) -> Any:
            if next(failures, False):
                raise sa.exc.OperationalError("SELECT", {}, Exception("away"))
            return action(session)

        return read(self, broken)

    monkeypatch.setattr(journal.Journal, "read", read_later)

    workshop.run_next()

    job = read_job(workshop.database, job_id)
    assert (job.status, job.attempt) == ("succeeded", 1)


def test_a_scratch_folder_that_cannot_be_made_is_the_jobs_error_at_once(
    workshop: Workshop, project: UUID
) -> None:
    job_id = workshop.queue(project)
    (workshop.folder / "file").touch()

    workshop.run_next(scratch_dir=workshop.folder / "file")

    job = read_job(workshop.database, job_id)
    assert (job.status, job.error["code"]) == ("failed", "internal")


def test_log_lines_that_cannot_be_stored_do_not_fail_the_job(
    workshop: Workshop, project: UUID, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    job_id = workshop.queue(project, log_lines=3)

    def refuse(_self: LogShipper, _chunk: object) -> None:
        raise sa.exc.IntegrityError("INSERT", {}, Exception("the row is there already"))

    monkeypatch.setattr(LogShipper, "_store", refuse)

    with capfd.disabled():
        workshop.run_next(capture_streams=True)

    assert read_job(workshop.database, job_id).status == "succeeded"


def raising(error: BaseException) -> Callable[..., PhaseOutput]:
    def debias(_self: Engine, _ctx: Context, _before: PhaseOutput) -> PhaseOutput:
        raise error

    return debias


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("error", [SystemExit(3), Unprintable(), RuntimeError("x" * 6000)])
def test_whatever_an_engine_raises_becomes_the_jobs_error(
    workshop: Workshop, project: UUID, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "debias", raising(error))
    job_id = workshop.queue(project)

    workshop.run_next()

    job = read_job(workshop.database, job_id)
    assert (job.status, job.error["code"]) == ("failed", "internal")


def test_texts_that_a_database_refuses_reach_the_user_escaped(
    workshop: Workshop, project: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = JobFailure(JobErrorCode.NUMERICAL_FAILURE, "bad \x00 and \ud800" + "x" * 6000, "h")

    def debias(_self: Engine, ctx: Context, _before: PhaseOutput) -> PhaseOutput:
        ctx.warn("odd", "a\x00b")
        ctx.progress(1, 2, "half \udfff")
        raise failure

    monkeypatch.setattr(Engine, "debias", debias)
    job_id = workshop.queue(project)

    workshop.run_next()

    job = read_job(workshop.database, job_id)
    assert (job.status, job.error["code"]) == ("failed", "numerical_failure")
    assert job.error["message"].startswith("bad \\x00 and \\ud800x")
    assert len(job.error["message"]) == MESSAGE_LIMIT


def test_a_pause_that_comes_when_the_work_is_done_does_not_undo_it(
    workshop: Workshop, project: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = workshop.queue(project)
    upload = Publisher.upload

    def upload_then_pause(self: Publisher, *args: Any, **options: Any) -> Any:
        stored = upload(self, *args, **options)
        with workshop.database.write() as session:
            session.execute(sa.update(Job).where(Job.id == job_id).values(stop_requested="pause"))
        return stored

    monkeypatch.setattr(Publisher, "upload", upload_then_pause)

    workshop.run_next()

    job = read_job(workshop.database, job_id)
    assert (job.status, job.stop_requested) == ("succeeded", None)
    with workshop.database.read() as session:
        assert session.execute(sa.select(Artifact).where(Artifact.job_id == job_id)).all()


def test_a_worker_that_leaves_gives_back_every_job_it_still_holds(
    database: Database, project: UUID, database_url: str, tmp_path: Path
) -> None:
    facts = SlotFacts(classes=("cpu",), scratch_dir=tmp_path, scratch_min_free_bytes=0)
    slot = WorkerSlot(open_parent_database(database_url), facts, TIMING)
    held = [queue_job(database, project) for _ in range(2)]
    for _ in held:
        claim_next(database, slot.identity)

    slot.leave()

    assert [read_job(database, job_id).status for job_id in held] == ["queued", "queued"]


@dataclass
class CountingBroker(RecordingBroker):
    """A broker that is down, and counts how often it was asked."""

    down: bool = True
    asked: int = 0

    def publish(self, job_id: UUID, *, dispatch: int, device_class: str) -> None:
        self.asked += 1
        super().publish(job_id, dispatch=dispatch, device_class=device_class)


def test_a_broker_that_refused_one_message_is_not_asked_for_the_others(
    database: Database, project: UUID
) -> None:
    broker = CountingBroker()
    jobs = [queue_job(database, project) for _ in range(2)]
    workers: list[WorkerIdentity] = [add_worker(database) for _ in range(2)]
    dispatcher = Dispatcher(database, broker, timing=TIMING, device_classes=("cpu",))

    report = dispatcher.run_once()

    assert (len(workers), broker.asked, len(report.refused)) == (2, 1, 2)
    assert [read_job(database, job_id).dispatched_at for job_id in jobs] == [None, None]
