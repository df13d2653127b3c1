"""Reading and writing share connections: one needs no transaction, the other always has one."""

import pytest
import sqlalchemy as sa

from app.db.session import Database
from app.db.tables import Project
from tests.fixtures.database import make_project


def names(database: Database) -> set[str]:
    with database.read() as session:
        return set(session.execute(sa.select(Project.name)).scalars())


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_reading_holds_no_transaction_open(database: Database) -> None:
    with database.read() as ours, database.read() as other:
        pid = ours.execute(sa.text("SELECT pg_backend_pid()")).scalar_one()
        look = sa.text("SELECT state FROM pg_stat_activity WHERE pid = :pid")
        state = other.execute(look, {"pid": pid}).scalar_one()

    assert state == "idle"


def test_a_connection_that_has_read_writes_in_a_transaction(database: Database) -> None:
    make_project(database)
    kept = names(database)

    def change_and_fail() -> None:
        with database.write() as session:
            session.execute(sa.update(Project).values(name="lost"))
            raise LookupError

    with pytest.raises(LookupError):
        change_and_fail()

    assert names(database) == kept


def test_what_is_changed_while_reading_is_never_written(database: Database) -> None:
    make_project(database)
    kept = names(database)

    with database.read() as session:
        project = session.execute(sa.select(Project)).scalars().first()
        assert project is not None
        project.name = "changed"
        session.execute(sa.select(Project.id)).all()

    assert names(database) == kept


@pytest.mark.parametrize(
    "statement",
    [
        sa.update(Project).values(name="lost"),
        sa.delete(Project),
        sa.insert(Project).values(name="x"),
    ],
)
def test_a_session_that_reads_refuses_to_write(
    database: Database, statement: sa.Executable
) -> None:
    make_project(database)
    kept = names(database)

    with pytest.raises(RuntimeError, match="asked to write"), database.read() as session:
        session.execute(statement)

    assert names(database) == kept


def test_a_session_that_reads_refuses_to_flush(database: Database) -> None:
    make_project(database)

    with database.read() as session:
        project = session.execute(sa.select(Project)).scalars().first()
        assert project is not None
        project.name = "changed"
        with pytest.raises(RuntimeError, match="asked to write"):
            session.flush()
