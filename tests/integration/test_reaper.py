from datetime import timedelta
from uuid import UUID

import pytest
import sqlalchemy as sa

from app.db.repositories.execution import WorkerIdentity, lock_fenced
from app.db.session import Database
from app.db.tables import Job, Worker
from app.db.transition import transition
from app.dispatch.reaper import Reaper
from app.domain.states import Actor, JobStatus
from tests.clock import FakeClock
from tests.execution import (
    TIMING,
    add_worker,
    claim_next,
    queue_job,
    read_attempts,
    read_events,
    read_job,
    spoil,
)
from tests.fixtures.database import make_project


@pytest.fixture
def worker(timed: Database) -> WorkerIdentity:
    return add_worker(timed)


@pytest.fixture
def job_id(timed: Database, worker: WorkerIdentity) -> UUID:
    """A running job."""
    queued = queue_job(timed, make_project(timed))
    claim_next(timed, worker)
    return queued


@pytest.fixture
def reaper(timed: Database) -> Reaper:
    return Reaper(timed, timing=TIMING)


def observe(reaper: Reaper, clock: FakeClock, seconds: float) -> None:
    """Tick as the maintenance loop does."""
    for _ in range(round(seconds / TIMING.reaper_s)):
        reaper.run_once()
        clock.advance(TIMING.reaper_s)


def test_a_lost_lease_puts_the_job_back_with_a_delay(
    timed: Database, job_id: UUID, reaper: Reaper, clock: FakeClock
) -> None:
    observe(reaper, clock, TIMING.lease_ttl_s + 1)

    job = read_job(timed, job_id)
    assert (job.status, job.failures) == ("queued", 1)
    assert job.run_after > job.queued_at
    assert job.error is not None
    assert job.error["code"] == "worker_lost"
    assert [attempt.outcome for attempt in read_attempts(timed, job_id)] == ["lost"]
    assert read_events(timed, job_id)[-1].type == "job.retry_scheduled"


def test_a_job_whose_attempts_are_used_up_fails(
    timed: Database, job_id: UUID, reaper: Reaper, clock: FakeClock
) -> None:
    with timed.write() as session:
        session.execute(sa.update(Job).where(Job.id == job_id).values(failures=2))

    observe(reaper, clock, TIMING.lease_ttl_s + 1)

    job = read_job(timed, job_id)
    assert (job.status, job.failures) == ("failed", 3)
    assert job.finished_at is not None


def test_a_job_being_cancelled_is_cancelled_when_its_worker_is_lost(
    timed: Database, job_id: UUID, reaper: Reaper, clock: FakeClock
) -> None:
    with timed.write() as session:
        transition(
            session,
            job_id,
            JobStatus.RUNNING,
            JobStatus.CANCELLING,
            Actor.API,
            now=timed.now(session),
            values={"stop_requested": "cancel"},
        )

    observe(reaper, clock, TIMING.lease_ttl_s + 1)

    assert read_job(timed, job_id).status == "cancelled"


def test_a_renewed_lease_is_left_alone(
    timed: Database, job_id: UUID, reaper: Reaper, clock: FakeClock
) -> None:
    observe(reaper, clock, TIMING.lease_ttl_s - TIMING.reaper_s)
    with timed.write() as session:
        job = lock_fenced(session, job_id, 1)
        assert job is not None
        job.lease_expires_at = clock.now() + timedelta(seconds=TIMING.lease_ttl_s)
    observe(reaper, clock, TIMING.lease_ttl_s)

    assert read_job(timed, job_id).status == "running"


def test_a_reaper_that_has_just_started_waits_for_one_lease(
    timed: Database, job_id: UUID, reaper: Reaper, clock: FakeClock
) -> None:
    clock.advance(TIMING.lease_ttl_s + 1)  # the service was down, the worker was not

    assert reaper.run_once().observing
    assert read_job(timed, job_id).status == "running"


def test_after_a_late_tick_the_contact_counts_anew(
    timed: Database, job_id: UUID, reaper: Reaper, clock: FakeClock
) -> None:
    observe(reaper, clock, TIMING.lease_ttl_s - TIMING.reaper_s)
    clock.advance(10 * TIMING.lease_ttl_s)  # this process was frozen

    assert reaper.run_once().observing


def test_after_a_laptop_slept_the_contact_counts_anew(
    timed: Database, job_id: UUID, reaper: Reaper, clock: FakeClock
) -> None:
    observe(reaper, clock, TIMING.lease_ttl_s - TIMING.reaper_s)
    clock.jump(8 * 3600)  # the monotonic clock stood still

    assert reaper.run_once().observing


def test_after_an_error_the_contact_counts_anew(
    timed: Database,
    job_id: UUID,
    reaper: Reaper,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    observe(reaper, clock, TIMING.lease_ttl_s - TIMING.reaper_s)
    with monkeypatch.context() as patched:
        patched.setattr(timed, "now", fail)
        with pytest.raises(sa.exc.OperationalError):
            reaper.run_once()
    clock.advance(TIMING.reaper_s)

    assert reaper.run_once().observing


def test_a_job_that_cannot_be_read_holds_up_no_other(
    timed: Database, job_id: UUID, worker: WorkerIdentity, reaper: Reaper, clock: FakeClock
) -> None:
    spoil(timed, job_id)
    clock.advance(0.1)
    behind = queue_job(timed, make_project(timed))
    claim_next(timed, worker)

    observe(reaper, clock, TIMING.lease_ttl_s + 1)

    assert read_job(timed, behind).status == "queued"
    assert not reaper.run_once().observing


def test_a_worker_unseen_for_long_is_lost(
    timed: Database, worker: WorkerIdentity, reaper: Reaper, clock: FakeClock
) -> None:
    observe(reaper, clock, TIMING.worker_timeout_s + TIMING.lease_ttl_s)

    with timed.read() as session:
        state = session.execute(sa.select(Worker.state).where(Worker.id == worker.id)).scalar_one()
    assert state == "lost"


def fail(_session: object) -> None:
    raise sa.exc.OperationalError("SELECT 1", {}, Exception("down"))
