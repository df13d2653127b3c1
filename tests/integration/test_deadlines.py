"""Jobs that nobody comes back for end by themselves, the paused ones with a warning."""

from datetime import timedelta
from uuid import UUID

import pytest
import sqlalchemy as sa

from app.db.events import append_event
from app.db.repositories.execution import WorkerIdentity, lock_fenced
from app.db.session import Database
from app.db.tables import Job
from app.dispatch.deadlines import PAUSED_MAX, PAUSED_WARNING, PENDING_MAX, Deadlines
from app.dispatch.endings import Ending, EndingWriter
from app.domain.states import Actor, AttemptOutcome, JobStatus, StopReason
from app.services.jobs import resume_job
from app.settings import Settings
from tests.clock import FakeClock
from tests.execution import (
    TIMING,
    add_worker,
    as_client,
    claim_next,
    queue_job,
    read_events,
    read_job,
    spoil,
)
from tests.fixtures.database import make_project

SECOND = 1.0


@pytest.fixture
def project(timed: Database) -> UUID:
    return make_project(timed)


@pytest.fixture
def worker(timed: Database) -> WorkerIdentity:
    return add_worker(timed)


@pytest.fixture
def deadlines(timed: Database) -> Deadlines:
    return Deadlines(timed)


@pytest.fixture
def paused(timed: Database, project: UUID, worker: WorkerIdentity) -> UUID:
    job_id = queue_job(timed, project)
    pause_again(timed, worker)
    return job_id


def pause_again(database: Database, worker: WorkerIdentity) -> None:
    """Let the next job run, and pause it."""
    claimed = claim_next(database, worker)
    with database.write() as session:
        job = lock_fenced(session, claimed.job_id, claimed.fence)
        assert job is not None
        job.stop_requested = StopReason.PAUSE
        ending, now = Ending(AttemptOutcome.PAUSED), database.now(session)
        EndingWriter(TIMING).end(session, job, ending, by=Actor.WORKER, now=now)


def leave_pending(database: Database, project: UUID) -> UUID:
    """Make a job that waits for another; nothing else makes one yet."""
    job_id = queue_job(database, project)
    with database.write() as session:
        values = {Job.status: JobStatus.PENDING, Job.queued_at: None}
        session.query(Job).filter(Job.id == job_id).update(values)
        append_event(session, job_id, "job.created", now=database.now(session))
    return job_id


def advance(clock: FakeClock, span: timedelta, seconds: float) -> None:
    clock.advance(span.total_seconds() + seconds)


def warnings(database: Database, job_id: UUID) -> list[str]:
    events = read_events(database, job_id)
    return [event.data["message"] for event in events if event.type == "job.warning"]


def test_a_paused_job_is_warned_once_a_day_before_its_end(
    timed: Database, paused: UUID, deadlines: Deadlines, clock: FakeClock
) -> None:
    advance(clock, PAUSED_MAX - PAUSED_WARNING, -SECOND)
    early = deadlines.run_once()
    clock.advance(2 * SECOND)
    due, again = deadlines.run_once(), deadlines.run_once()

    assert (early.warned, due.warned, again.warned) == ([], [paused], [])
    assert len(warnings(timed, paused)) == 1
    assert "2026-01-08T" in warnings(timed, paused)[0]
    assert read_job(timed, paused).status == "paused"


def test_a_job_paused_for_a_week_is_cancelled_and_says_why(
    timed: Database, paused: UUID, deadlines: Deadlines, clock: FakeClock
) -> None:
    advance(clock, PAUSED_MAX - PAUSED_WARNING, SECOND)
    deadlines.run_once()
    advance(clock, PAUSED_WARNING, -2 * SECOND)
    early = deadlines.run_once()
    clock.advance(2 * SECOND)

    assert early.cancelled == []
    assert deadlines.run_once().cancelled == [paused]
    last = read_events(timed, paused)[-1]
    assert (last.type, last.data["code"]) == ("job.cancelled", "paused_too_long")
    assert read_job(timed, paused).status == "cancelled"


def test_a_job_that_nobody_could_warn_is_not_cancelled_without_a_day_of_warning(
    timed: Database, paused: UUID, deadlines: Deadlines, clock: FakeClock
) -> None:
    advance(clock, 2 * PAUSED_MAX, 0)
    first = deadlines.run_once()
    advance(clock, PAUSED_WARNING, SECOND)
    second = deadlines.run_once()

    assert (first.warned, first.cancelled) == ([paused], [])
    assert second.cancelled == [paused]


def test_the_week_begins_anew_with_every_pause(
    timed: Database,
    project: UUID,
    paused: UUID,
    worker: WorkerIdentity,
    deadlines: Deadlines,
    clock: FakeClock,
) -> None:
    advance(clock, PAUSED_MAX - PAUSED_WARNING, SECOND)
    deadlines.run_once()
    with as_client(timed, project) as client:
        resume_job(client, paused, Settings(_env_file=None))
    pause_again(timed, worker)

    advance(clock, PAUSED_MAX - PAUSED_WARNING, -SECOND)
    early = deadlines.run_once()
    clock.advance(2 * SECOND)

    assert (early.warned, early.cancelled) == ([], [])
    assert deadlines.run_once().warned == [paused]


def test_a_job_that_cannot_be_read_holds_up_no_other(
    timed: Database,
    project: UUID,
    paused: UUID,
    worker: WorkerIdentity,
    deadlines: Deadlines,
    clock: FakeClock,
) -> None:
    behind = queue_job(timed, project)
    pause_again(timed, worker)
    waiting = [leave_pending(timed, project) for _ in range(2)]
    for job_id in (paused, waiting[0]):
        spoil(timed, job_id)

    advance(clock, PAUSED_MAX - PAUSED_WARNING, SECOND)
    first = deadlines.run_once()
    advance(clock, PAUSED_WARNING, SECOND)
    second = deadlines.run_once()

    assert (first.warned, first.cancelled) == ([behind], [waiting[1]])
    assert (second.warned, second.cancelled) == ([], [behind])


def test_an_outage_in_the_middle_ends_the_round(
    timed: Database,
    paused: UUID,
    deadlines: Deadlines,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> None:
        raise sa.exc.OperationalError("BEGIN", {}, Exception("down"))

    advance(clock, PAUSED_MAX, 0)
    monkeypatch.setattr(timed, "write", refuse)

    with pytest.raises(sa.exc.OperationalError):
        deadlines.run_once()


def test_a_queued_job_may_wait_as_long_as_it_must(
    timed: Database, project: UUID, deadlines: Deadlines, clock: FakeClock
) -> None:
    job_id = queue_job(timed, project)
    advance(clock, 30 * PAUSED_MAX, 0)

    deadlines.run_once()

    assert read_job(timed, job_id).status == "queued"


def test_a_pending_job_is_cancelled_after_a_day(
    timed: Database, project: UUID, deadlines: Deadlines, clock: FakeClock
) -> None:
    job_id = leave_pending(timed, project)
    advance(clock, PENDING_MAX, -SECOND)
    early = deadlines.run_once()
    clock.advance(2 * SECOND)

    assert early.cancelled == []
    assert deadlines.run_once().cancelled == [job_id]
    assert read_events(timed, job_id)[-1].data["code"] == "pending_too_long"
