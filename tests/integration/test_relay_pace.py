from collections.abc import Callable
from uuid import UUID

import pytest

from app.db.repositories.execution import jobs_are_moving
from app.db.session import Database
from app.db.transition import transition
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
