from collections import Counter
from uuid import UUID

import pytest
import sqlalchemy as sa

from app.db.repositories.execution import dispatch_next
from app.db.session import Database
from app.db.tables import Job, Worker
from app.db.transition import transition
from app.dispatch.dispatcher import Dispatcher
from app.domain.states import Actor, JobStatus
from tests.clock import FakeClock
from tests.execution import (
    TIMING,
    RecordingBroker,
    add_worker,
    claim,
    dispatch_one,
    queue_job,
    read_job,
)
from tests.fixtures.database import make_project


@pytest.fixture
def broker() -> RecordingBroker:
    return RecordingBroker()


@pytest.fixture
def dispatcher(timed: Database, broker: RecordingBroker) -> Dispatcher:
    return Dispatcher(timed, broker, timing=TIMING, device_classes=("cpu", "gpu"))


def test_a_job_for_an_idle_worker_is_published_with_its_dispatch_number(
    timed: Database, broker: RecordingBroker, dispatcher: Dispatcher
) -> None:
    add_worker(timed)
    job_id = queue_job(timed, make_project(timed))

    report = dispatcher.run_once()

    assert report.published == [job_id]
    assert broker.messages == [(job_id, 1, "cpu")]


def test_no_more_jobs_are_handed_out_than_workers_are_idle(
    timed: Database, broker: RecordingBroker, dispatcher: Dispatcher
) -> None:
    for _ in range(2):
        add_worker(timed)
    project = make_project(timed)
    for _ in range(5):
        queue_job(timed, project)

    dispatcher.run_once()
    dispatcher.run_once()

    assert len(broker.messages) == 2


def test_a_busy_worker_is_no_slot(
    timed: Database, broker: RecordingBroker, dispatcher: Dispatcher
) -> None:
    worker = add_worker(timed)
    project = make_project(timed)
    job_id = queue_job(timed, project)
    dispatcher.run_once()
    assert claim(timed, job_id, 1, worker) is not None
    queue_job(timed, project)

    dispatcher.run_once()

    assert len(broker.messages) == 1


@pytest.mark.parametrize(
    "column", [{"state": "draining"}, {"disk_low": True}, {"drain_requested": True}]
)
def test_a_worker_that_takes_no_jobs_is_no_slot(
    timed: Database,
    broker: RecordingBroker,
    dispatcher: Dispatcher,
    column: dict[str, object],
) -> None:
    add_worker(timed)
    busy = add_worker(timed, **column)
    project = make_project(timed)
    for _ in range(3):
        queue_job(timed, project)

    dispatcher.run_once()

    assert busy is not None
    assert len(broker.messages) == 1


def test_before_any_worker_has_reported_one_job_waits_in_the_queue(
    timed: Database, broker: RecordingBroker, dispatcher: Dispatcher
) -> None:
    project = make_project(timed)
    for _ in range(3):
        queue_job(timed, project)

    dispatcher.run_once()
    dispatcher.run_once()

    assert len(broker.messages) == 1


def test_a_worker_unseen_for_long_counts_no_more(
    timed: Database, broker: RecordingBroker, dispatcher: Dispatcher, clock: FakeClock
) -> None:
    for _ in range(3):
        add_worker(timed)
    clock.advance(TIMING.worker_timeout_s + 1)
    project = make_project(timed)
    for _ in range(3):
        queue_job(timed, project)

    dispatcher.run_once()

    assert len(broker.messages) == 1


def test_a_worker_of_two_classes_is_one_slot_for_both(
    timed: Database, broker: RecordingBroker, dispatcher: Dispatcher
) -> None:
    add_worker(timed, classes=("cpu", "gpu"))
    project = make_project(timed)
    queue_job(timed, project, device_class="cpu")
    queue_job(timed, project, device_class="gpu")

    dispatcher.run_once()

    assert len(broker.messages) == 1


def test_a_refused_message_leaves_the_job_queued_for_the_next_round(
    timed: Database, broker: RecordingBroker, dispatcher: Dispatcher
) -> None:
    add_worker(timed)
    job_id = queue_job(timed, make_project(timed))
    broker.down = True

    refused = dispatcher.run_once().refused
    waiting = read_job(timed, job_id)
    broker.down = False
    dispatcher.run_once()

    assert refused == [job_id]
    assert waiting.dispatched_at is None
    assert broker.messages == [(job_id, 2, "cpu")]


def test_a_lost_message_is_sent_again_under_the_same_number(
    timed: Database, broker: RecordingBroker, dispatcher: Dispatcher, clock: FakeClock
) -> None:
    add_worker(timed)
    job_id = queue_job(timed, make_project(timed))
    dispatcher.run_once()
    clock.advance(TIMING.resend_s + 0.1)

    report = dispatcher.run_once()

    assert report.resent == [job_id]
    assert broker.messages == [(job_id, 1, "cpu")] * 2


def test_a_message_that_waits_behind_a_long_job_is_not_sent_again(
    timed: Database, broker: RecordingBroker, dispatcher: Dispatcher, clock: FakeClock
) -> None:
    worker = add_worker(timed)
    project = make_project(timed)
    first = queue_job(timed, project)
    dispatcher.run_once()
    queue_job(timed, project)
    add_worker(timed)
    dispatcher.run_once()
    assert claim(timed, first, 1, worker, lease_ttl_s=600) is not None
    with timed.write() as session:
        session.execute(sa.update(Worker).where(Worker.id != worker.id).values(state="stopped"))
    clock.advance(TIMING.resend_s + 0.1)

    report = dispatcher.run_once()

    assert report.idle


def test_a_message_never_published_because_of_a_crash_is_sent_later(
    timed: Database, broker: RecordingBroker, dispatcher: Dispatcher, clock: FakeClock
) -> None:
    add_worker(timed)
    job_id = queue_job(timed, make_project(timed))
    assert dispatch_one(timed) == (job_id, 1)  # committed, then the process died
    clock.advance(TIMING.resend_s + 0.1)

    assert dispatcher.run_once().resent == [job_id]


def test_a_job_is_not_dispatched_before_its_time(
    timed: Database, broker: RecordingBroker, dispatcher: Dispatcher, clock: FakeClock
) -> None:
    add_worker(timed)
    job_id = queue_job(timed, make_project(timed))
    with timed.write() as session:
        later = clock.now().replace(year=2027)
        session.execute(sa.update(Job).where(Job.id == job_id).values(run_after=later))

    assert dispatcher.run_once().idle


def test_within_a_project_priority_comes_before_age(timed: Database) -> None:
    project = make_project(timed)
    queue_job(timed, project)
    urgent = queue_job(timed, project, priority=5)

    assert dispatch_one(timed) == (urgent, 1)


def test_projects_share_by_weight_and_none_exceeds_its_cap(timed: Database) -> None:
    light = make_project(timed, weight=1, max_running=1000)
    heavy = make_project(timed, weight=3, max_running=1000)
    capped = make_project(timed, weight=1, max_running=2)
    for project in (light, heavy, capped):
        for _ in range(35):
            queue_job(timed, project)

    taken = Counter(project_of(timed, dispatch_one(timed)) for _ in range(42))

    # The share found in the design's own measurement.
    assert taken == {light: 10, heavy: 30, capped: 2}


def test_a_suspended_project_runs_nothing(timed: Database) -> None:
    queue_job(timed, make_project(timed, suspended=True))

    assert dispatch_one(timed) is None


def test_cancelling_a_dispatched_job_frees_its_slot(
    timed: Database, broker: RecordingBroker, dispatcher: Dispatcher, clock: FakeClock
) -> None:
    add_worker(timed)
    project = make_project(timed)
    first = queue_job(timed, project)
    clock.advance(1)
    second = queue_job(timed, project)
    dispatcher.run_once()
    with timed.write() as session:
        transition(
            session, first, JobStatus.QUEUED, JobStatus.CANCELLED, Actor.API, now=timed.now(session)
        )

    assert dispatcher.run_once().published == [second]


def project_of(database: Database, dispatched: tuple[UUID, int] | None) -> UUID:
    assert dispatched is not None
    return read_job(database, dispatched[0]).project_id


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_a_job_cancelled_while_it_is_picked_costs_nobody_the_round(database: Database) -> None:
    project = make_project(database)
    picked_first, next_in_line = (queue_job(database, project) for _ in range(2))
    cancelled = []

    def cancel(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if "first.share" not in statement or cancelled:
            return
        cancelled.append(picked_first)
        with database.write() as other:
            transition(
                other,
                picked_first,
                JobStatus.QUEUED,
                JobStatus.CANCELLED,
                Actor.API,
                now=database.now(other),
            )

    sa.event.listen(database.engine, "after_cursor_execute", cancel)
    try:
        with database.write() as session:
            found = dispatch_next(session, "cpu", now=database.now(session))
    finally:
        sa.event.remove(database.engine, "after_cursor_execute", cancel)

    assert cancelled == [picked_first]
    assert found is not None
    assert found.job_id == next_in_line
