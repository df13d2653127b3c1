from pathlib import Path
from uuid import UUID

import pytest
import sqlalchemy as sa

from app.db.repositories.workers import ask_to_drain
from app.db.session import Database
from app.db.tables import Job, OutboxMessage, Worker
from app.db.transition import transition
from app.dispatch.dispatcher import Dispatcher
from app.domain.states import Actor, JobStatus
from tests.clock import FakeClock
from tests.execution import (
    TIMING,
    RecordingBroker,
    add_worker,
    claim,
    claim_next,
    dispatch_one,
    queue_job,
    read_attempts,
    read_job,
)
from tests.fixtures.database import make_project
from workers.runtime.faults import oom_kills
from workers.slot import SlotFacts, WorkerSlot, open_parent_database

LOST = "Worker exited prematurely: signal 11 (SIGSEGV) Job: 0."


@pytest.fixture
def slot(database_url: str, tmp_path: Path) -> WorkerSlot:
    facts = SlotFacts(classes=("cpu",), scratch_dir=tmp_path, scratch_min_free_bytes=0)
    return WorkerSlot(open_parent_database(database_url), facts, TIMING)


@pytest.fixture
def project(database: Database) -> UUID:
    return make_project(database)


def announce(database: Database, slot: WorkerSlot) -> None:
    with database.write() as session:
        slot.child_ready(session, "cpu", now=database.now(session))


def read_worker(database: Database, slot: WorkerSlot) -> Worker:
    with database.read() as session:
        statement = sa.select(Worker).where(Worker.id == slot.identity.id)
        return session.execute(statement).scalar_one()


def test_a_worker_is_known_once_its_child_waits_for_a_job(
    database: Database, slot: WorkerSlot
) -> None:
    announce(database, slot)

    worker = read_worker(database, slot)
    assert (worker.state, worker.classes, worker.current_job_id) == ("ready", ["cpu"], None)
    with database.read() as session:
        assert session.execute(sa.select(OutboxMessage.topic)).scalars().all() == ["dispatch"]


def test_a_worker_is_no_free_slot_between_a_job_and_its_next_child(
    database: Database, slot: WorkerSlot, project: UUID
) -> None:
    announce(database, slot)
    queue_job(database, project)
    claimed = claim_next(database, slot.identity)
    slot.child_lost(claimed.job_id, claimed.dispatch, LOST)
    queue_job(database, project)
    broker = RecordingBroker()
    dispatcher = Dispatcher(database, broker, timing=TIMING, device_classes=("cpu",))

    dispatcher.run_once()
    before = list(broker.messages)
    announce(database, slot)
    dispatcher.run_once()

    assert before == []
    assert len(broker.messages) == 1


def test_the_attempt_of_a_dead_child_ends_at_once_and_says_how(
    database: Database, slot: WorkerSlot, project: UUID
) -> None:
    job_id = queue_job(database, project)
    claimed = claim_next(database, slot.identity)

    slot.child_lost(job_id, claimed.dispatch, LOST)

    job = read_job(database, job_id)
    attempt = read_attempts(database, job_id)[0]
    assert (job.status, job.failures) == ("queued", 1)
    assert (attempt.outcome, attempt.signal, attempt.error["code"]) == ("lost", 11, "worker_lost")


def test_a_child_that_died_before_its_claim_only_gives_the_message_back(
    database: Database, slot: WorkerSlot, project: UUID
) -> None:
    job_id = queue_job(database, project)
    dispatched = dispatch_one(database)
    assert dispatched is not None

    slot.child_lost(*dispatched, LOST)

    job = read_job(database, job_id)
    assert (job.status, job.failures, job.dispatched_at) == ("queued", 0, None)


def test_the_death_of_a_fenced_child_does_not_touch_the_newer_attempt(
    database: Database, slot: WorkerSlot, project: UUID
) -> None:
    job_id = queue_job(database, project)
    old = claim_next(database, slot.identity)
    with database.write() as session:  # reaped meanwhile, and claimed by another worker
        transition(
            session,
            job_id,
            JobStatus.RUNNING,
            JobStatus.QUEUED,
            Actor.REAPER,
            now=database.now(session),
        )
    dispatched = dispatch_one(database)
    assert dispatched is not None
    newer = claim(database, *dispatched, add_worker(database))

    slot.child_lost(job_id, old.dispatch, LOST)

    job = read_job(database, job_id)
    assert newer is not None
    assert (job.status, job.fence) == ("running", newer.fence)


def test_a_kill_near_the_memory_limit_counts_as_out_of_memory(
    database: Database, slot: WorkerSlot, project: UUID
) -> None:
    job_id = queue_job(database, project)
    claimed = claim_next(database, slot.identity)
    with database.write() as session:
        attempt = read_attempts(database, job_id)[0]
        session.merge(attempt).peak_rss_bytes = 2**62

    slot.child_lost(job_id, claimed.dispatch, "Worker exited prematurely: signal 9 (SIGKILL)")

    assert read_job(database, job_id).error["code"] == "oom_host"


def test_a_worker_that_leaves_gives_back_what_its_child_could_not(
    database: Database, slot: WorkerSlot, project: UUID
) -> None:
    announce(database, slot)
    job_id = queue_job(database, project)
    claim_next(database, slot.identity)

    slot.leave()

    assert (read_job(database, job_id).status, read_worker(database, slot).state) == (
        "queued",
        "stopped",
    )
    assert read_attempts(database, job_id)[0].outcome == "drained"


def test_an_idle_worker_whose_message_waits_for_long_knows_it(
    timed: Database, clock: FakeClock, tmp_path: Path
) -> None:
    facts = SlotFacts(classes=("cpu",), scratch_dir=tmp_path, scratch_min_free_bytes=0)
    idle = WorkerSlot(timed, facts, TIMING)
    announce(timed, idle)
    job_id = queue_job(timed, make_project(timed))
    dispatch_one(timed)
    fresh = idle.is_overlooked()
    with timed.write() as session:
        values = {"published_at": clock.now()}
        session.execute(sa.update(Job).where(Job.id == job_id).values(**values))

    clock.advance(TIMING.worker_timeout_s + 1)
    first_look = idle.is_overlooked()
    clock.advance(TIMING.resend_s)

    assert (fresh, first_look, idle.is_overlooked()) == (False, False, True)


def test_a_row_of_a_killed_worker_of_this_host_is_marked_as_lost(
    database: Database, slot: WorkerSlot
) -> None:
    dead = add_worker(database, host=slot.identity.host, pid=2**22 + 1)
    elsewhere = add_worker(database, host="elsewhere", pid=2**22 + 1)

    slot.forget_predecessors()

    with database.read() as session:
        states = dict(session.execute(sa.select(Worker.id, Worker.state)).all())
    assert states == {dead.id: "lost", elsewhere.id: "ready"}


def test_a_worker_learns_with_its_report_that_it_is_to_drain(
    database: Database, slot: WorkerSlot
) -> None:
    announce(database, slot)
    other = add_worker(database)
    with database.write() as session:
        asked = ask_to_drain(session, other.id)
    before = slot.report()
    with database.write() as session:
        ask_to_drain(session, slot.identity.id)

    assert asked
    assert (before, slot.report()) == (False, True)
    slot.leave()
    with database.write() as session:
        assert not ask_to_drain(session, slot.identity.id)


SIGKILLED = "Worker exited prematurely: signal 9 (SIGKILL) Job: 0."


def test_a_kill_that_the_kernel_counted_is_out_of_memory_and_any_other_is_not(
    database: Database,
    database_url: str,
    project: UUID,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counters = tmp_path / "memory.events"
    counters.write_text("low 0\nhigh 3\nmax 9\noom 1\noom_kill 4\n")
    monkeypatch.setattr("workers.slot.oom_kills", lambda: oom_kills((counters,)))
    facts = SlotFacts(classes=("cpu",), scratch_dir=tmp_path, scratch_min_free_bytes=0)
    slot = WorkerSlot(open_parent_database(database_url), facts, TIMING)
    job_id = queue_job(database, project, max_attempts=5)

    for kills in (4, 5, 5, 6):  # somebody's kill -9, the kernel's, somebody's, the kernel's
        with database.write() as session:
            session.get_one(Job, job_id).run_after = database.now(session)
        claimed = claim_next(database, slot.identity)
        counters.write_text(f"oom {kills}\noom_kill {kills}\noom_group_kill 0\n")
        slot.child_lost(job_id, claimed.dispatch, SIGKILLED)

    codes = [attempt.error["code"] for attempt in read_attempts(database, job_id)]
    assert codes == ["worker_lost", "oom_host", "worker_lost", "oom_host"]
    assert read_job(database, job_id).status == "failed"
