import threading
from collections.abc import Callable
from uuid import UUID

import pytest

from app.db.repositories.execution import jobs_are_moving
from app.db.session import Database
from app.db.transition import transition
from app.dispatch.maintenance import Loop
from app.domain.states import Actor, JobStatus
from tests.execution import add_worker, claim_next, queue_job
from tests.fixtures.database import make_project


def leave_queued(database: Database, job_id: UUID) -> None:
    pass


def claim(database: Database, job_id: UUID) -> None:
    claim_next(database, add_worker(database))


def cancel(database: Database, job_id: UUID) -> None:
    with database.write() as session:
        now = database.now(session)
        transition(session, job_id, JobStatus.QUEUED, JobStatus.CANCELLED, Actor.API, now=now)


@pytest.mark.parametrize(
    ("change", "moving"), [(leave_queued, True), (claim, True), (cancel, False)]
)
def test_the_relay_looks_often_only_while_a_job_waits_or_runs(
    database: Database, change: Callable[[Database, UUID], None], moving: bool
) -> None:
    change(database, queue_job(database, make_project(database)))

    with database.read() as session:
        assert jobs_are_moving(session) is moving


def test_nudges_that_come_close_together_share_a_round() -> None:
    rounds: list[int] = []
    third = threading.Event()

    def step() -> bool:
        rounds.append(len(rounds))
        if len(rounds) == 1:
            loop.nudge()
        if len(rounds) == 3:
            third.set()
        return False

    loop = Loop("nudged", step, least_s=60, most_s=60, gap_s=0.3)
    loop.start()
    while len(rounds) < 2:  # the second round begins a gap after the first
        loop.nudge()
    for _ in range(100):
        loop.nudge()

    assert third.wait(30)
    loop.ask_to_stop()
    assert loop.join(30)
    assert len(rounds) <= 4
