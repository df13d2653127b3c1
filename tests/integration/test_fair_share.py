"""Projects share the slots by weight, keep to their caps, and never hold each other up."""

import threading
from collections import Counter, deque
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.repositories.execution import claim_job, dispatch_next, lock_dispatch
from app.db.session import Database
from app.db.tables import Job, Project
from app.db.transition import transition
from app.dispatch.dispatcher import Dispatcher
from app.domain.clock import unix_ms
from app.domain.ids import new_id
from app.domain.states import Actor, JobStatus
from tests.execution import TIMING, RecordingBroker, add_worker, queue_job
from tests.fixtures.database import make_project

SLOTS = 8


class Shop:
    """A number of slots that are always full; the job that runs longest ends next."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.worker = add_worker(database)
        self.running: deque[UUID] = deque()
        self.started: Counter[UUID] = Counter()

    def run(self, dispatches: int) -> None:
        with self.database.write() as session:
            for _ in range(dispatches):
                self._start_one(session, self.database.now(session))

    def _start_one(self, session: Session, now: datetime) -> None:
        if len(self.running) == SLOTS:
            ended = self.running.popleft()
            source, target = JobStatus.RUNNING, JobStatus.SUCCEEDED
            assert transition(session, ended, source, target, Actor.WORKER, now=now)
        job = dispatch_next(session, "cpu", now=now)
        assert job is not None
        claimed = claim_job(
            session, job.job_id, job.dispatch, worker=self.worker, now=now, lease_ttl_s=600
        )
        assert claimed is not None
        self.running.append(claimed.job_id)
        self.started[claimed.project_id] += 1


def queue_many(database: Database, project: UUID, count: int, **columns: Any) -> None:
    first = queue_job(database, project, **columns)
    with database.write() as session:
        # Copies of the one, without the events that a request would write.
        row = session.execute(sa.select(Job.__table__).where(Job.id == first)).one()._asdict()
        copies = [{**row, "id": new_id(unix_ms(row["created_at"]))} for _ in range(count - 1)]
        if copies:
            session.execute(sa.insert(Job.__table__), copies)


def change_project(database: Database, project: UUID, **columns: object) -> None:
    with database.write() as session:
        session.execute(sa.update(Project).where(Project.id == project).values(**columns))


def test_three_projects_share_by_weight_over_many_dispatches(timed: Database) -> None:
    weights = {make_project(timed, weight=weight): weight for weight in (1, 3, 4)}
    for project, weight in weights.items():
        queue_many(timed, project, 26 * weight)
    shop = Shop(timed)

    shop.run(200)

    assert shop.started == {project: 25 * weight for project, weight in weights.items()}


def test_one_to_three_is_a_quarter_and_three_quarters(timed: Database) -> None:
    light, heavy = make_project(timed, weight=1), make_project(timed, weight=3)
    queue_many(timed, light, 60)
    queue_many(timed, heavy, 60)
    shop = Shop(timed)

    shop.run(64)

    assert shop.started == {light: 16, heavy: 48}


def test_priority_gives_a_project_no_larger_share(timed: Database) -> None:
    eager, patient = make_project(timed), make_project(timed)
    queue_many(timed, eager, 40, priority=10)
    queue_many(timed, patient, 40)
    shop = Shop(timed)

    shop.run(48)

    assert shop.started == {eager: 24, patient: 24}


@pytest.mark.parametrize("obstacle", [{"suspended": True}, {"max_running": 0}])
def test_a_project_that_may_not_run_leaves_its_share_to_others(
    timed: Database, obstacle: dict[str, object]
) -> None:
    blocked = make_project(timed, weight=1000, **obstacle)
    queue_many(timed, blocked, 10, priority=10)
    others = [make_project(timed), make_project(timed)]
    for project in others:
        queue_many(timed, project, 30)
    shop = Shop(timed)

    shop.run(40)

    assert shop.started == dict.fromkeys(others, 20)


def test_a_project_takes_part_again_once_its_suspension_ends(timed: Database) -> None:
    suspended, other = make_project(timed), make_project(timed)
    queue_many(timed, suspended, 20)
    queue_many(timed, other, 40)
    shop = Shop(timed)
    change_project(timed, suspended, suspended=True)
    shop.run(16)
    change_project(timed, suspended, suspended=False)

    shop.run(16)

    # Half of what came after, in spite of the other's head start of eight running jobs.
    assert shop.started == {suspended: 8, other: 16 + 8}


def test_a_cap_holds_with_dispatchers_that_race(database_url: str) -> None:
    databases = [Database(database_url) for _ in range(4)]
    first = databases[0]
    capped, free = make_project(first, max_running=3), make_project(first, max_running=1000)
    queue_many(first, capped, 12)
    queue_many(first, free, 4)
    for _ in range(16):
        add_worker(first)
    start = threading.Barrier(len(databases))

    def dispatch(database: Database) -> None:
        dispatcher = Dispatcher(database, RecordingBroker(), timing=TIMING, device_classes=("cpu",))
        start.wait()
        dispatcher.run_once()

    threads = [threading.Thread(target=dispatch, args=(database,)) for database in databases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    with first.read() as session:
        dispatched = sa.select(Job.project_id).where(Job.dispatched_at.is_not(None))
        counts = Counter(session.execute(dispatched).scalars())
    for database in databases:
        database.dispose()
    assert counts == {capped: 3, free: 4}


def test_a_dispatcher_waits_for_the_decision_of_another(database: Database) -> None:
    capped = make_project(database, max_running=2)
    queue_many(database, capped, 4)
    for _ in range(4):
        add_worker(database)
    broker = RecordingBroker()
    dispatcher = Dispatcher(database, broker, timing=TIMING, device_classes=("cpu",))
    second = threading.Thread(target=dispatcher.run_once)

    with database.write() as session:
        lock_dispatch(session)
        for _ in range(2):
            assert dispatch_next(session, "cpu", now=database.now(session)) is not None
        second.start()
        second.join(0.3)  # has to wait for this transaction; without the lock it would not
    second.join(30)

    assert broker.messages == []
