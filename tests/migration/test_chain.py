"""The one chain of revisions, on both databases."""

import secrets
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from app.db import schema, tables
from app.db.base import Base
from app.db.session import Database
from app.domain.errors import Unavailable
from tests.server_addresses import PostgresAddress

PROJECT = UUID(int=1)


@pytest.fixture(params=["sqlite", "postgres"])
def empty_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        database = Database(f"sqlite:///{tmp_path / 'chain.db'}")
        yield database
        database.dispose()
        return
    server: PostgresAddress = request.getfixturevalue("postgres_server")
    name = f"chain_{secrets.token_hex(6)}"
    database = Database(server.create_database(name).url)
    yield database
    database.dispose()
    server.drop_database(name)


def test_head_and_back_to_base_and_to_head_again(empty_database: Database) -> None:
    schema.upgrade(empty_database)
    schema.downgrade(empty_database, "base")

    assert set(sa.inspect(empty_database.engine).get_table_names()) <= {"alembic_version"}

    schema.upgrade(empty_database)

    schema.require_current(empty_database)


def test_migrations_build_what_the_tables_say(empty_database: Database) -> None:
    schema.upgrade(empty_database)

    with empty_database.engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True}
        )
        differences = compare_metadata(context, Base.metadata)

    assert differences == []


def test_check_constraints_of_migrations_equal_those_of_the_tables(tmp_path: Path) -> None:
    migrated, created = (Database(f"sqlite:///{tmp_path / n}.db") for n in ("m", "c"))
    schema.upgrade(migrated)
    Base.metadata.create_all(created.engine)

    for table in Base.metadata.tables:
        found, wanted = (
            sorted((check["name"], check["sqltext"]) for check in
                   sa.inspect(database.engine).get_check_constraints(table))
            for database in (migrated, created)
        )  # fmt: skip
        assert found == wanted, table
    for database in (migrated, created):
        database.dispose()


def test_an_empty_database_is_refused_with_the_command_that_mends_it(
    empty_database: Database,
) -> None:
    with pytest.raises(Unavailable, match="debias db upgrade"):
        schema.require_current(empty_database)


def test_a_newer_database_is_refused(empty_database: Database) -> None:
    schema.upgrade(empty_database)
    with empty_database.write() as session:
        session.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))

    with pytest.raises(Unavailable, match="9999"):
        schema.require_current(empty_database)


def test_a_second_upgrade_of_an_old_sqlite_file_keeps_a_copy(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'old.db'}")
    schema.upgrade(database)
    with database.write() as session:
        session.execute(sa.text("UPDATE alembic_version SET version_num = '0000'"))

    with pytest.raises(Exception, match="0000"):
        schema.upgrade(database)

    assert (tmp_path / f"old.db.before-{schema.head_revision()}").exists()
    database.dispose()


def test_there_is_one_head_and_the_head_file_names_it() -> None:
    heads = ScriptDirectory(str(schema.MIGRATIONS)).get_heads()

    assert [(schema.MIGRATIONS / "HEAD").read_text().strip()] == list(heads)


def test_impossible_rows_are_kept_out_by_the_database(empty_database: Database) -> None:
    schema.upgrade(empty_database)
    moment = empty_database.clock.now()
    with empty_database.write() as session:
        session.execute(
            sa.insert(tables.Project).values(
                id=PROJECT, name="p", created_at=moment, updated_at=moment
            )
        )

    for impossible in (
        {"status": "running"},  # without a lease
        {"status": "queued", "lease_expires_at": moment},
        {"status": "succeeded"},  # without an end
        {"status": "running", "lease_expires_at": moment, "dispatched_at": moment},
        {"status": "asleep"},
    ):
        with pytest.raises(sa.exc.IntegrityError), empty_database.write() as session:
            session.execute(sa.insert(tables.Job).values(**job_row(moment, **impossible)))


def job_row(moment: object, **overrides: object) -> dict[str, object]:
    return {
        "id": UUID(int=2), "project_id": PROJECT, "created_at": moment,
        "updated_at": moment, "kind": "debias", "method": "fake", "method_version": "1.0.0",
        "spec": {}, "resolved_spec": {}, "spec_hash": "0" * 64, "device_class": "cpu",
        "run_after": moment, "max_attempts": 1, "max_runtime_s": 60, "labels": {},
        **overrides,
    }  # fmt: skip
