"""A schema is upgraded under processes that go on working."""

import secrets
import threading
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from app.db import schema
from app.db.session import Database
from tests.server_addresses import PostgresAddress

WAITING = sa.text(
    "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'relation'"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


@pytest.fixture
def old_database(postgres_server: PostgresAddress) -> Iterator[Database]:
    name = f"live_{secrets.token_hex(6)}"
    database = Database(postgres_server.create_database(name).url)
    schema.upgrade(database, "0001")
    yield database
    database.dispose()
    postgres_server.drop_database(name)


def test_an_attempt_that_writes_while_the_upgrade_waits_is_no_deadlock(
    old_database: Database,
) -> None:
    failed: list[BaseException] = []

    def upgrade() -> None:
        try:
            schema.upgrade(old_database)
        except sa.exc.SQLAlchemyError as exc:
            failed.append(exc)

    upgrading = threading.Thread(target=upgrade)
    with old_database.engine.begin() as attempt:
        # What every write of an attempt does: its job first, then what belongs to it.
        attempt.execute(sa.text("UPDATE jobs SET version = version"))
        upgrading.start()
        with old_database.engine.connect() as observer:
            while upgrading.is_alive() and not observer.execute(WAITING).scalar_one():
                upgrading.join(0.02)
        attempt.execute(sa.text("UPDATE job_attempts SET host = host"))
        attempt.execute(sa.text("UPDATE blobs SET state = state"))
    upgrading.join()

    assert failed == []
    schema.require_current(old_database)
