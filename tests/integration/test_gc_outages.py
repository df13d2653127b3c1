"""What the collector still does while the object store is away."""

from pathlib import Path
from typing import Any, NoReturn, cast
from uuid import UUID

import pytest
import sqlalchemy as sa

from app.db.session import Database
from app.db.tables import Job, JobEvent, JobLogChunk
from app.dispatch.gc.collector import Collector
from app.domain.errors import StorageUnavailable
from app.domain.retention import Freed
from app.storage.objects import ObjectStore
from tests.execution import Workshop
from tests.fixtures.database import make_project
from tests.retention import NO_GRACE, age, collector

OLD_DAYS = 200


class DeadStore:
    """Refuses whatever it is asked."""

    def __getattr__(self, name: str) -> Any:
        def refuse(*_: object, **__: object) -> NoReturn:
            raise StorageUnavailable(f"no {name}: the store is away")

        return refuse


DEAD = cast(ObjectStore, DeadStore())


@pytest.fixture
def workshop(database: Database, tmp_path: Path) -> Workshop:
    return Workshop(database, tmp_path)


@pytest.fixture
def project(database: Database) -> UUID:
    return make_project(database)


@pytest.fixture
def logged(workshop: Workshop, project: UUID) -> UUID:
    """An old job whose logs are due, and with them the store is needed first of all."""
    job_id = run_long_ago(workshop, project)
    with workshop.database.write() as session:
        now = workshop.database.now(session)
        session.add(
            JobLogChunk(
                job_id=job_id,
                attempt=1,
                stream="stdout",
                n=1,
                first_line=1,
                line_count=1,
                byte_size=5,
                storage_key="p/prj_x/logs/job_x/att_x/stdout/1.ndjson.gz",
                first_at=now,
                last_at=now,
            )
        )
    return job_id


@pytest.fixture
def deleted(workshop: Workshop, project: UUID) -> UUID:
    """An old job without logs that its user deleted."""
    job_id = run_long_ago(workshop, project)
    with workshop.database.write() as session:
        session.get_one(Job, job_id).deleted_at = workshop.database.now(session)
    age(workshop.database, job_id, OLD_DAYS)
    return job_id


def run_long_ago(workshop: Workshop, project: UUID) -> UUID:
    job_id = workshop.queue(project)
    workshop.run_next()
    age(workshop.database, job_id, OLD_DAYS)
    return job_id


def has_rows(database: Database, condition: sa.ColumnElement[bool]) -> bool:
    with database.read() as session:
        return bool(session.execute(sa.select(sa.exists().where(condition))).scalar_one())


def test_steps_that_need_no_store_are_done_without_one(
    workshop: Workshop, logged: UUID, deleted: UUID
) -> None:
    database = workshop.database

    with pytest.raises(StorageUnavailable, match="delete_many"):
        collector(database, DEAD).run_once()

    assert not has_rows(database, JobEvent.job_id == logged)
    assert not has_rows(database, Job.id == deleted)
    assert has_rows(database, JobLogChunk.job_id == logged)


def test_what_was_left_is_collected_once_the_store_is_back(
    workshop: Workshop, logged: UUID, deleted: UUID
) -> None:
    with pytest.raises(StorageUnavailable):
        collector(workshop.database, DEAD).run_once()

    report = collector(workshop.database, workshop.store).run_once()

    assert report.complete
    assert report.freed["logs"].rows == 1
    assert not has_rows(workshop.database, JobLogChunk.job_id == logged)


def test_a_collector_that_is_to_stop_tries_no_further_step_after_a_failed_one(
    workshop: Workshop, logged: UUID, deleted: UUID
) -> None:
    asked: list[str] = []

    class StoppingStore(DeadStore):
        def delete_many(self, _keys: object) -> None:
            asked.append("delete_many")
            gc.stop()
            raise StorageUnavailable("away")

    def on_freed(kind: str, _freed: Freed) -> None:
        asked.append(kind)

    store = cast(ObjectStore, StoppingStore())
    gc = Collector(workshop.database, store, periods=NO_GRACE, on_freed=on_freed)

    with pytest.raises(StorageUnavailable):
        gc.run_once()

    assert asked[-1] == "delete_many"


def test_an_outage_of_the_database_ends_the_run_at_once(
    workshop: Workshop, deleted: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def refuse() -> NoReturn:
        asked.append(None)
        raise sa.exc.OperationalError("BEGIN", {}, Exception("down"))

    monkeypatch.setattr(workshop.database, "write", refuse)

    with pytest.raises(sa.exc.OperationalError):
        collector(workshop.database, workshop.store).run_once()
    assert len(asked) == 1
