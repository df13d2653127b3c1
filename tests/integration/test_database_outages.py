"""No caller waits without end for a database, and every way to be away is the same error."""

import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import psycopg
import pytest
import sqlalchemy as sa

from app.db import postgres, session
from app.db.session import Database
from app.db.tables import Project
from tests.fixtures.database import make_project
from tests.gateway import Gateway
from tests.server_addresses import PostgresAddress
from tests.servers import PostgresServer

ANSWER_TIMEOUT_S = 0.5
OUTAGE = sa.exc.OperationalError


@contextmanager
def opened(url: str) -> Iterator[Database]:
    database = Database(url, connect_timeout_s=2, answer_timeout_s=ANSWER_TIMEOUT_S)
    try:
        yield database
    finally:
        database.dispose()


@pytest.fixture
def postgres_url(migrated_postgres: tuple[PostgresAddress, str]) -> Iterator[str]:
    server, template = migrated_postgres
    name = f"outage_{time.monotonic_ns()}"
    yield server.create_database(name, template=template).url
    server.drop_database(name)


@pytest.fixture
def sqlite_path(migrated_sqlite: Path, tmp_path: Path) -> Path:
    path = tmp_path / "debias.db"
    path.write_bytes(migrated_sqlite.read_bytes())
    return path


def count_projects(database: Database) -> int:
    with database.read() as session:
        return session.execute(sa.select(sa.func.count()).select_from(Project)).scalar_one()


def disturb_a_transaction(
    database: Database, disturb: Callable[[], None], statement: sa.Select[Any] | None = None
) -> None:
    with database.write() as session:
        session.execute(sa.select(1) if statement is None else statement)
        disturb()
        session.execute(sa.select(1))


@contextmanager
def suspended(server: PostgresServer) -> Iterator[None]:
    postmaster = psutil.Process(server.pid).children()[0]
    processes = [postmaster, *postmaster.children(recursive=True)]
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            process.resume()


def test_a_server_that_hangs_with_its_connections_open_is_given_up() -> None:
    server = PostgresServer()
    with server as address, opened(address.url) as database:
        with database.read() as session:
            session.execute(sa.select(1))

        with suspended(server), pytest.raises(OUTAGE), database.read() as session:
            session.execute(sa.select(1))

        with database.read() as session:
            assert session.execute(sa.select(1)).scalar_one() == 1


def test_a_server_that_hangs_in_the_middle_of_a_transaction_is_given_up(postgres_url: str) -> None:
    dsn = urlsplit(postgres_url)
    assert dsn.port is not None
    with Gateway(dsn.port) as gateway:
        url = postgres_url.replace(f":{dsn.port}/", f":{gateway.port}/")
        with opened(url) as database:
            with pytest.raises(OUTAGE):
                disturb_a_transaction(database, gateway.silence)
            gateway.restore()

            assert count_projects(database) == 0


def test_a_lock_of_an_outsider_is_not_waited_for_without_end(postgres_url: str) -> None:
    with opened(postgres_url) as database, psycopg.connect(_dsn(postgres_url)) as outsider:
        outsider.execute("LOCK TABLE projects IN ACCESS EXCLUSIVE MODE")

        with pytest.raises(OUTAGE):
            count_projects(database)
        outsider.rollback()

        assert count_projects(database) == 0


def test_a_process_that_froze_in_a_transaction_loses_its_locks(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "IDLE_IN_TRANSACTION_S", 0.2)
    with opened(postgres_url) as frozen, opened(postgres_url) as other:
        project_id = make_project(frozen)
        lock = sa.select(Project).where(Project.id == project_id).with_for_update()

        def take_the_lock() -> None:
            with other.write() as session:  # waits until the server has ended the first
                assert session.execute(lock).scalar_one()

        with pytest.raises(OUTAGE):
            disturb_a_transaction(frozen, take_the_lock, lock)


def test_a_server_that_became_a_replica_is_an_outage(postgres_url: str) -> None:
    with opened(postgres_url) as database:
        with psycopg.connect(_dsn(postgres_url), autocommit=True) as admin:
            name = urlsplit(postgres_url).path[1:]
            admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")

        with pytest.raises(OUTAGE):
            make_project(database)


def test_a_connection_that_the_server_ended_is_replaced_unseen(postgres_url: str) -> None:
    with opened(postgres_url) as database:
        count_projects(database)
        terminate_others(postgres_url)

        assert count_projects(database) == 0


def test_a_new_connection_that_the_server_ends_at_once_is_an_outage(postgres_url: str) -> None:
    """As in a restart: the pool makes a connection, and has none by the time that it is used."""
    with opened(postgres_url) as database:

        @sa.event.listens_for(database.engine, "connect")
        def end(_connection: object, _record: object) -> None:
            terminate_others(postgres_url)

        with pytest.raises(OUTAGE):
            count_projects(database)


def test_a_transaction_that_the_server_ended_is_an_outage(postgres_url: str) -> None:
    with opened(postgres_url) as database:
        with pytest.raises(OUTAGE):
            disturb_a_transaction(database, lambda: terminate_others(postgres_url))

        assert count_projects(database) == 0


def test_a_server_without_free_connections_is_an_outage(postgres_url: str) -> None:
    with psycopg.connect(_dsn(postgres_url), autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS crowded")
        admin.execute("CREATE ROLE crowded LOGIN CONNECTION LIMIT 1")
    url = postgres_url.replace("//debias@", "//crowded@")
    with opened(url) as first, opened(url) as second, first.read() as session:
        session.execute(sa.select(1))

        with pytest.raises(OUTAGE), second.read() as refused:
            refused.execute(sa.select(1))


def test_an_outsider_that_holds_the_file_is_not_waited_for_without_end(sqlite_path: Path) -> None:
    with opened(f"sqlite:///{sqlite_path}") as database:
        outsider = sqlite3.connect(sqlite_path, isolation_level=None)
        outsider.execute("BEGIN IMMEDIATE")

        with pytest.raises(OUTAGE):
            make_project(database)
        outsider.execute("ROLLBACK")
        outsider.close()

        make_project(database)
        assert count_projects(database) == 1


def test_writers_of_one_process_do_not_queue_without_end(sqlite_path: Path) -> None:
    with opened(f"sqlite:///{sqlite_path}") as database:
        writing, done = threading.Event(), threading.Event()

        def hold() -> None:
            with database.write():
                writing.set()
                done.wait()

        holder = threading.Thread(target=hold)
        holder.start()
        writing.wait()

        with pytest.raises(sa.exc.TimeoutError):
            make_project(database)
        done.set()
        holder.join()
        make_project(database)


def test_a_caller_that_gets_no_connection_is_told_so(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "POOL_SIZE", 1)
    monkeypatch.setattr(session, "POOL_TIMEOUT_S", 0.01)

    with opened(database_url) as database, ExitStack() as stack:
        for _ in range(2):  # the pool, and as many on top
            stack.enter_context(database.read()).execute(sa.select(1))

        with pytest.raises(sa.exc.TimeoutError):
            count_projects(database)
        stack.close()
        count_projects(database)


def test_a_database_in_memory_keeps_its_own_pool() -> None:
    with opened("sqlite://") as database:
        with database.write() as session:
            session.execute(sa.text("CREATE TABLE kept (n INTEGER)"))
        with database.read() as session:
            assert session.execute(sa.text("SELECT count(*) FROM kept")).scalar_one() == 0


def test_a_file_that_is_no_database_is_an_outage(sqlite_path: Path) -> None:
    sqlite_path.write_bytes(b"not a database, whatever its name says" * 100)

    with opened(f"sqlite:///{sqlite_path}") as database, pytest.raises(OUTAGE):
        count_projects(database)


def test_a_replaced_file_is_opened_and_a_deleted_one_not_written(
    sqlite_path: Path, tmp_path: Path
) -> None:
    with opened(f"sqlite:///{sqlite_path}") as database:
        backup = tmp_path / "backup.db"
        backup.write_bytes(sqlite_path.read_bytes())
        make_project(database)
        for suffix in ("", "-wal", "-shm"):
            Path(f"{sqlite_path}{suffix}").unlink()

        with pytest.raises(OUTAGE):
            make_project(database)
        for suffix in ("-wal", "-shm"):
            Path(f"{sqlite_path}{suffix}").unlink(missing_ok=True)
        backup.replace(sqlite_path)

        assert count_projects(database) == 0
        make_project(database)


@pytest.mark.parametrize("connections", [1, 3])
@pytest.mark.parametrize("suffixes", [("-wal",), ("-wal", "-shm")])
def test_nothing_is_lost_with_a_deleted_log(
    sqlite_path: Path, connections: int, suffixes: tuple[str, ...]
) -> None:
    with opened(f"sqlite:///{sqlite_path}") as database:
        with ExitStack() as reading:
            for _ in range(connections):
                reading.enter_context(database.read()).execute(sa.select(1))
        make_project(database)
        for suffix in suffixes:
            Path(f"{sqlite_path}{suffix}").unlink()

        make_project(database)

        # Another process, and so what a restart would find.
        count = "import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).execute(sys.argv[2]))"
        for statement, expected in (
            ("SELECT count(*) FROM projects", "(2,)"),
            ("PRAGMA integrity_check", "('ok',)"),
        ):
            command = [sys.executable, "-c", count, str(sqlite_path), statement]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            assert done.stdout.strip() == expected


def test_the_log_of_the_file_shrinks_after_a_large_write(sqlite_path: Path) -> None:
    log = Path(f"{sqlite_path}-wal")
    with opened(f"sqlite:///{sqlite_path}") as database:
        with database.write() as session:
            session.execute(sa.text("CREATE TABLE ballast (bytes BLOB)"))
        with database.write() as session:
            for _ in range(10):
                session.execute(sa.text("INSERT INTO ballast VALUES (randomblob(10000000))"))
        assert log.stat().st_size > 90_000_000

        for _ in range(2):
            make_project(database)

        assert log.stat().st_size <= 67_108_864


def terminate_others(url: str) -> None:
    with psycopg.connect(_dsn(url), autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def _dsn(url: str) -> str:
    return url.replace("+psycopg", "")
