"""A store that takes the lines of a log and never answers: every attempt still ends as it should.

The store does answer long after the lease, so that an attempt that waits for it fails its test.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.catalog.registry import load_registry
from app.db.session import Database
from app.db.tables import Job
from app.dispatch.endings import EndingWriter
from app.domain.states import JobStatus
from app.services.jobs import cancel_job, pause_job
from app.storage.objects import ObjectStore
from tests.execution import (
    FAKE,
    TIMING,
    ProcessEnded,
    Workshop,
    as_client,
    read_attempts,
    read_job,
)
from tests.fixtures.database import make_project
from workers.attempt import log_shipping
from workers.attempt.services import EXIT_STOPPED
from workers.runtime.context import Context, PhaseOutput
from workers.testkit.fake_method import Engine

Ask = Callable[[Workshop, UUID, UUID], None]

METHODS = load_registry([FAKE])
IMPATIENT = replace(TIMING, stop_poll_s=0.05, stop_grace_s=0.1, last_lines_s=0.1)
LONG_AFTER_THE_LEASE_S = 4 * TIMING.lease_ttl_s


@dataclass
class SilentStore:
    """A store that takes no log line before `answers` is set, or a long time is over."""

    real: ObjectStore
    answers: threading.Event = field(default_factory=threading.Event)
    asked: threading.Event = field(default_factory=threading.Event)

    def put_bytes(self, key: str, data: bytes) -> None:
        self.asked.set()
        self.answers.wait(LONG_AFTER_THE_LEASE_S)
        self.answers.set()
        self.real.put_bytes(key, data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


@pytest.fixture
def workshop(database: Database, tmp_path: Path) -> Workshop:
    return Workshop(database, tmp_path)


@pytest.fixture
def project(database: Database) -> UUID:
    return make_project(database)


@pytest.fixture
def store(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Iterator[SilentStore]:
    monkeypatch.setattr(log_shipping, "SHIP_PERIOD_S", 0.01)
    silent = SilentStore(workshop.store)
    yield silent
    silent.answers.set()


@pytest.fixture
def leases_held(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the job was still leased, for each ending that was written."""
    held: list[bool] = []
    end = EndingWriter.end

    def noted(
        self: EndingWriter, session: Session, job: Job, *args: Any, now: datetime, **options: Any
    ) -> JobStatus | None:
        assert job.lease_expires_at is not None
        held.append(job.lease_expires_at > now)
        return end(self, session, job, *args, now=now, **options)

    monkeypatch.setattr(EndingWriter, "end", noted)
    return held


def cancel(workshop: Workshop, project: UUID, job_id: UUID) -> None:
    with as_client(workshop.database, project) as client:
        cancel_job(client, job_id, keep_checkpoint=False)


def pause(workshop: Workshop, project: UUID, job_id: UUID) -> None:
    with as_client(workshop.database, project) as client:
        pause_job(client, job_id, METHODS)


def run_out_of_time(_workshop: Workshop, _project: UUID, _job_id: UUID) -> None:
    """Do nothing: the job's time limit is a second."""


def queue(workshop: Workshop, project: UUID, ask: Ask) -> UUID:
    job_id = workshop.queue(project)
    if ask is run_out_of_time:
        with workshop.database.write() as session:
            session.execute(sa.update(Job).where(Job.id == job_id).values(max_runtime_s=1))
    return job_id


def say_something(store: SilentStore) -> None:
    """Print a line, and wait until it hangs in the store."""
    print("a line", flush=True)
    assert store.asked.wait(LONG_AFTER_THE_LEASE_S)


def seen(workshop: Workshop, job_id: UUID) -> tuple[str, list[str | None], str | None]:
    job = read_job(workshop.database, job_id)
    outcomes = [attempt.outcome for attempt in read_attempts(workshop.database, job_id)]
    return job.status, outcomes, (job.error or {}).get("code")


@pytest.mark.parametrize(
    ("ask", "status", "outcome", "code"),
    [
        (cancel, "cancelled", "cancelled", None),
        (pause, "paused", "paused", None),
        (run_out_of_time, "failed", "failed", "timeout"),
    ],
)
def test_a_process_that_gives_its_engine_up_ends_while_the_job_is_its_own(
    workshop: Workshop, project: UUID, store: SilentStore, leases_held: list[bool], ask: Ask,
    status: str, outcome: str, code: str | None, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    job_id = queue(workshop, project, ask)
    ended: list[int] = []
    gone = threading.Event()

    def stay(_self: Engine, _ctx: Context, _before: PhaseOutput) -> PhaseOutput:
        say_something(store)
        ask(workshop, project, job_id)
        gone.wait(2 * LONG_AFTER_THE_LEASE_S)
        raise ProcessEnded(0)

    def exit_now(exit_code: int) -> None:
        ended.append(exit_code)
        gone.set()

    monkeypatch.setattr(Engine, "debias", stay)

    with capfd.disabled():
        workshop.run_next(store=store, timing=IMPATIENT, capture_streams=True, exit_now=exit_now)

    assert seen(workshop, job_id) == (status, [outcome], code)
    assert (store.answers.is_set(), leases_held, ended[0]) == (False, [True], EXIT_STOPPED)


def test_an_engine_that_stops_is_not_kept_by_its_last_lines(
    workshop: Workshop, project: UUID, store: SilentStore, leases_held: list[bool],
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    job_id = workshop.queue(project, wait_for=str(workshop.folder / "never"))
    debias = Engine.debias

    def debias_until_told(self: Engine, ctx: Context, before: PhaseOutput) -> PhaseOutput:
        say_something(store)
        cancel(workshop, project, job_id)
        return debias(self, ctx, before)

    monkeypatch.setattr(Engine, "debias", debias_until_told)
    timing = replace(IMPATIENT, stop_grace_s=LONG_AFTER_THE_LEASE_S)

    with capfd.disabled():
        workshop.run_next(store=store, timing=timing, capture_streams=True)

    assert seen(workshop, job_id) == ("cancelled", ["cancelled"], None)
    assert (store.answers.is_set(), leases_held) == (False, [True])


def test_a_finished_job_succeeds_without_its_last_lines(
    workshop: Workshop, project: UUID, store: SilentStore, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    job_id = workshop.queue(project)
    timing = replace(IMPATIENT, outage_stop_s=0.1)
    debias = Engine.debias

    def debias_and_say(self: Engine, ctx: Context, before: PhaseOutput) -> PhaseOutput:
        say_something(store)
        return debias(self, ctx, before)

    monkeypatch.setattr(Engine, "debias", debias_and_say)

    with capfd.disabled():
        workshop.run_next(store=store, timing=timing, capture_streams=True)

    assert seen(workshop, job_id) == ("succeeded", ["succeeded"], None)
    assert not store.answers.is_set()
