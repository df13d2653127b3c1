"""A clock that is set, or differs from host to host, neither stops jobs nor takes them away."""

from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
import sqlalchemy as sa

from app.db.repositories.execution import WorkerIdentity
from app.db.session import Database
from app.db.tables import OutboxMessage
from app.dispatch.dispatcher import Dispatcher
from app.dispatch.outbox import Message, Relay
from app.dispatch.reaper import Reaper
from app.domain.clock import SystemClock
from tests.clock import FakeClock
from tests.execution import (
    TIMING,
    RecordingBroker,
    Workshop,
    add_worker,
    claim_next,
    queue_job,
    read_attempts,
    read_job,
)
from tests.fixtures.database import make_project

HOURS_S = 7200.0


@pytest.fixture
def project(timed: Database) -> UUID:
    return make_project(timed)


@pytest.fixture
def worker(timed: Database) -> WorkerIdentity:
    return add_worker(timed)


@pytest.fixture
def broker() -> RecordingBroker:
    return RecordingBroker()


@pytest.fixture
def dispatcher(timed: Database, broker: RecordingBroker) -> Dispatcher:
    return Dispatcher(timed, broker, timing=TIMING, device_classes=("cpu",))


def let_pass(database: Database, clock: FakeClock, seconds: float) -> None:
    """Let time pass under a reaper that has just started."""
    reaper = Reaper(database, timing=TIMING)
    for _ in range(round(seconds / TIMING.reaper_s)):
        reaper.run_once()
        clock.advance(TIMING.reaper_s)


def test_a_job_queued_before_the_clock_went_back_runs_soon(
    timed: Database,
    project: UUID,
    worker: WorkerIdentity,
    dispatcher: Dispatcher,
    clock: FakeClock,
) -> None:
    job_id = queue_job(timed, project)
    clock.jump(-HOURS_S)

    let_pass(timed, clock, TIMING.lease_ttl_s + 1)

    assert dispatcher.run_once().published == [job_id]


def test_a_message_lost_before_the_clock_went_back_is_sent_again(
    timed: Database,
    project: UUID,
    worker: WorkerIdentity,
    dispatcher: Dispatcher,
    clock: FakeClock,
) -> None:
    job_id = queue_job(timed, project)
    assert dispatcher.run_once().published == [job_id]
    clock.jump(-HOURS_S)

    let_pass(timed, clock, TIMING.lease_ttl_s + TIMING.resend_s + 1)
    add_worker(timed)

    assert dispatcher.run_once().resent == [job_id]


def test_a_worker_that_died_before_the_clock_went_back_is_missed(
    timed: Database, project: UUID, worker: WorkerIdentity, clock: FakeClock
) -> None:
    job_id = queue_job(timed, project)
    claim_next(timed, worker)
    clock.jump(-HOURS_S)

    let_pass(timed, clock, 2 * TIMING.lease_ttl_s + 1)

    assert read_job(timed, job_id).status == "queued"
    assert [attempt.outcome for attempt in read_attempts(timed, job_id)] == ["lost"]


def test_a_side_effect_asked_for_before_the_clock_went_back_is_carried_out(
    timed: Database, project: UUID, clock: FakeClock
) -> None:
    acted: list[Message] = []
    with timed.read() as session:
        before = session.execute(sa.select(OutboxMessage.id)).all()
    queue_job(timed, project)
    clock.jump(-HOURS_S)

    let_pass(timed, clock, TIMING.lease_ttl_s + 1)
    Relay(timed, {"dispatch": acted.extend}, timing=TIMING).run_once()

    assert (len(before), len(acted)) == (0, 1)


def test_a_delay_before_the_next_attempt_is_left_as_it_is(
    timed: Database, project: UUID, clock: FakeClock
) -> None:
    job_id = queue_job(timed, project)
    due = clock.now() + timedelta(seconds=600)
    with timed.write() as session:
        job = session.merge(read_job(timed, job_id))
        job.run_after = due

    let_pass(timed, clock, TIMING.lease_ttl_s + 1)

    assert read_job(timed, job_id).run_after == due


def test_a_living_attempt_keeps_its_job_whichever_way_the_clock_is_set(
    timed: Database, project: UUID, clock: FakeClock
) -> None:
    job_id = queue_job(timed, project)
    claimed = claim_next(timed, add_worker(timed))
    reaper = Reaper(timed, timing=TIMING)

    for jump_s in (HOURS_S, -2 * HOURS_S, HOURS_S):
        clock.jump(jump_s)
        for _ in range(round(2 * TIMING.lease_ttl_s / TIMING.reaper_s)):
            reaper.run_once()
            renew(timed, job_id)
            clock.advance(TIMING.reaper_s)

    job = read_job(timed, job_id)
    assert (job.status, job.fence) == ("running", claimed.fence)


def renew(database: Database, job_id: UUID) -> None:
    with database.write() as session:
        job = session.merge(read_job(database, job_id))
        job.lease_expires_at = database.now(session) + timedelta(seconds=TIMING.lease_ttl_s)


class FastClock(SystemClock):
    """The clock of a host that is five minutes ahead."""

    def now(self) -> datetime:
        return super().now() + timedelta(minutes=5)


def test_a_worker_whose_host_is_ahead_writes_the_time_of_the_database(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if database.is_sqlite:
        return  # one host, one clock
    monkeypatch.setattr("app.db.session.SystemClock", FastClock)
    ahead = Database(str(database.engine.url.render_as_string(hide_password=False)))
    workshop = Workshop(ahead, tmp_path)
    job_id = workshop.queue(make_project(ahead))

    workshop.run_next()

    job = read_job(database, job_id)
    with database.read() as session:
        now = database.now(session)
    assert job.status == "succeeded"
    assert job.started_at is not None
    assert job.finished_at is not None
    assert job.started_at <= job.finished_at <= now
    ahead.dispose()
