"""What waiting clients cost the database does not depend on how many there are."""

import asyncio
from contextlib import ExitStack
from uuid import UUID

import pytest
import sqlalchemy as sa

from app.api.watcher import JobWatcher
from app.db.session import Database
from tests.execution import queue_job
from tests.fixtures.database import make_project
from tests.integration.api.callers import some_principal

MANY = 200


@pytest.fixture
def job_ids(database: Database) -> list[UUID]:
    project = make_project(database)
    return [queue_job(database, project) for _ in range(MANY)]


async def look(database: Database, job_ids: list[UUID]) -> tuple[int, int, list[str]]:
    """Watch these jobs, each with a key of its own, and look once at the jobs and at the keys.

    Returns
    -------
    tuple
        How many jobs had changed, how many watches ended, and the statements that it took.
    """
    watcher, statements = JobWatcher(database), []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    with ExitStack() as stack:
        for job_id in job_ids:
            stack.enter_context(watcher.watch(job_id, some_principal(), with_logs=True))
        sa.event.listen(database.engine, "before_cursor_execute", note)
        stack.callback(sa.event.remove, database.engine, "before_cursor_execute", note)
        return watcher.run_once(), watcher.end_dead(), statements


def test_two_hundred_streams_take_as_many_statements_as_one(
    database: Database, job_ids: list[UUID]
) -> None:
    one_changed, one_ended, of_one = asyncio.run(look(database, job_ids[:1]))
    changed, ended, of_many = asyncio.run(look(database, job_ids))

    assert (one_changed, one_ended, changed, ended) == (1, 1, MANY, MANY)
    assert sum(statement.startswith("SELECT") for statement in of_one) >= 3
    assert len(of_many) == len(of_one)
