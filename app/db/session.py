"""One synchronous database layer for the API, the maintenance loops and the workers."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine, ExceptionContext
from sqlalchemy.orm import ORMExecuteState, Session, sessionmaker
from sqlalchemy.pool import ConnectionPoolEntry, NullPool

from app.db.types import UtcTime
from app.domain.clock import Clock, SystemClock

SQLITE_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=NORMAL",
    "PRAGMA foreign_keys=ON",
    # Of each connection: by default 2 MB, and 20 of them let the process grow by 60 MiB under load.
    # The kernel keeps the same pages.
    "PRAGMA cache_size=-512",
    # The log is reused, but without a limit its file stays as large as it once was.
    "PRAGMA journal_size_limit=67108864",
)
_SERVER_TIME = sa.text("SELECT clock_timestamp()")
POOL_SIZE = 10
POOL_TIMEOUT_S = 5
"""A request that waits longer for a connection is answered 503, not left hanging."""
ANSWER_TIMEOUT_S = 10.0
"""The same for a lock or a statement. Twice this is well below a lease: after a silent server
a heartbeat has the time for another try."""
MIGRATION_TIMEOUT_S = 60.0
OUTAGE_ERRORS = (sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.TimeoutError)
"""What says that the database cannot be used at the moment; any other error is a defect."""
# Internal to psycopg, but not defects: the server has become a read-only replica by a fail-over,
# or has ended a transaction in which nothing happened for too long.
OUTAGE_STATES = frozenset({"25006", "25P03"})


class Database:
    """Engine, sessions and the clock that all rows are stamped with.

    Parameters
    ----------
    url
        `sqlite:///path` or `postgresql+psycopg://...`.
    clock
        Set in tests only. By default rows carry the database's own time on PostgreSQL, where
        several hosts write, and this host's on SQLite.
    pooled
        False opens and closes a connection for every transaction: for a process that forks.
    connect_timeout_s
        How long to wait for PostgreSQL.
    answer_timeout_s
        How long a statement may take and a lock be waited for; None for as long as it takes,
        which is for migrations.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        pooled: bool = True,
        connect_timeout_s: int = 5,
        answer_timeout_s: float | None = ANSWER_TIMEOUT_S,
    ) -> None:
        self.clock = clock or SystemClock()
        self._fixed_clock = clock is not None
        self.engine = (
            _create_sqlite_engine(url, pooled, answer_timeout_s)
            if sa.make_url(url).get_backend_name() == "sqlite"
            else _create_postgres_engine(url, pooled, connect_timeout_s, answer_timeout_s)
        )
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        self._writer = threading.Lock()
        self._writer_timeout_s = -1 if answer_timeout_s is None else answer_timeout_s
        self._writing = sessionmaker(self.engine, expire_on_commit=False)
        self._reading = sessionmaker(_for_reading(self.engine), autoflush=False)
        sa.event.listen(self._reading, "do_orm_execute", _refuse_writes)
        sa.event.listen(self._reading, "before_flush", _refuse_flush)

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Open a session that only reads.

        On SQLite all that it reads is of one moment. On PostgreSQL each statement has a moment of
        its own, as everywhere in this service, and nothing would undo a write: it is refused.
        """
        with self._reading() as session:
            # Closing leaves what was read readable, unlike rollback().
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Open a writing transaction; commit at the end, roll back on an exception.

        Keep it short: no network call and no hashing inside.
        """
        with self._turn(), self._writing() as session:
            if self.is_sqlite:
                session.connection(execution_options={"sqlite_begin": "IMMEDIATE"})
            yield session
            session.commit()

    def now(self, session: Session) -> datetime:
        """Return the time to stamp rows with."""
        if self._is_clocked_here:
            return self.clock.now()
        moment: datetime = session.execute(_SERVER_TIME).scalar_one()
        return moment

    @property
    def time(self) -> sa.ColumnElement[datetime]:
        """The same time as part of a statement, which spares asking for it before."""
        here = self._is_clocked_here
        return (
            sa.literal(self.clock.now(), UtcTime)
            if here
            else sa.func.clock_timestamp(type_=UtcTime)
        )

    @property
    def _is_clocked_here(self) -> bool:
        return self._fixed_clock or self.is_sqlite

    def dispose(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Queue the writers of this process: SQLite's own waiting polls and is unfair."""
        if not self.is_sqlite:
            yield
            return
        if not self._writer.acquire(timeout=self._writer_timeout_s):
            raise sa.exc.TimeoutError("another write of this process holds the database")
        try:
            yield
        finally:
            self._writer.release()


def _create_postgres_engine(
    url: str, pooled: bool, connect_timeout_s: int, answer_timeout_s: float | None
) -> Engine:
    # Not at the top: the embedded service does without the driver.
    from app.db.postgres import bound_waiting, refuse_closed_connections

    arguments = {
        "connect_timeout": connect_timeout_s,
        # A server that vanishes without a word must not hold a heartbeat for the kernel's hours.
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 15_000,
    }
    engine = sa.create_engine(
        url, connect_args=arguments, skip_autocommit_rollback=True, **_pool_options(pooled)
    )
    sa.event.listen(engine, "handle_error", _as_outage, retval=True)
    if pooled:
        refuse_closed_connections(engine)
    if answer_timeout_s is not None:
        bound_waiting(engine, answer_timeout_s)
    return engine


def _create_sqlite_engine(url: str, pooled: bool, answer_timeout_s: float | None) -> Engine:
    # The driver's `timeout` is SQLite's busy handler.
    waiting = {"timeout": MIGRATION_TIMEOUT_S if answer_timeout_s is None else answer_timeout_s}
    arguments = {"check_same_thread": False, **waiting}
    # A database in memory ends with its connection, and has a pool of its own for that.
    in_memory = _path_of(sa.make_url(url)) is None
    options = {} if pooled and in_memory else _pool_options(pooled)
    engine = sa.create_engine(url, connect_args=arguments, **options)
    sa.event.listen(engine, "handle_error", _as_outage, retval=True)
    sa.event.listen(engine, "connect", _prepare_sqlite)
    _follow_the_file(engine)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _for_reading(engine: Engine) -> Engine:
    """Share the pool of `engine`, without a transaction where it would change nothing.

    Under READ COMMITTED, the level of PostgreSQL and of our writes, each statement sees what was
    committed when it began, in a transaction or not: BEGIN and ROLLBACK would be two round trips
    for one that reads.
    """
    if engine.dialect.name == "sqlite":
        return engine
    return engine.execution_options(isolation_level="AUTOCOMMIT")


def _refuse_writes(state: ORMExecuteState) -> None:
    if state.is_insert or state.is_update or state.is_delete:
        raise RuntimeError("a session of Database.read is asked to write")


def _refuse_flush(session: Session, _context: object, _instances: object) -> None:
    if session.new or session.dirty or session.deleted:
        raise RuntimeError("a session of Database.read is asked to write")


def _pool_options(pooled: bool) -> dict[str, Any]:
    if not pooled:
        return {"poolclass": NullPool}
    return {
        "pool_size": POOL_SIZE,
        "max_overflow": POOL_SIZE,
        "pool_timeout": POOL_TIMEOUT_S,
    }


def _as_outage(context: ExceptionContext) -> BaseException | None:
    """Give one class, OperationalError, to whatever says that the database cannot be used."""
    error = context.original_exception
    damaged = type(error) is sqlite3.DatabaseError  # not one of its sub-classes
    if not damaged and getattr(error, "sqlstate", None) not in OUTAGE_STATES:
        return None
    return sa.exc.OperationalError(
        context.statement,
        context.parameters,
        error,
        connection_invalidated=context.is_disconnect,
    )


def _follow_the_file(engine: Engine) -> None:
    """Use no connection whose file or write-ahead log was deleted or replaced.

    What it wrote would be lost with it. A new connection makes a new log.
    """
    path = _path_of(engine.url)
    if path is None:
        return
    log = f"{path}-wal"

    def remember(_connection: object, record: ConnectionPoolEntry) -> None:
        record.info["files"] = _identity(path), _identity(log)

    def compare(
        connection: sqlite3.Connection, record: ConnectionPoolEntry, _proxy: object
    ) -> None:
        known, found = record.info["files"], (_identity(path), _identity(log))
        if known == found:
            return
        if found == (known[0], None):
            # Only connections like this one still reach what was committed to the deleted log.
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        raise sa.exc.DisconnectionError("the database file or its log was deleted or replaced")

    sa.event.listen(engine, "connect", remember)
    sa.event.listen(engine, "checkout", compare)


def _path_of(url: sa.URL) -> str | None:
    return url.database if url.database not in ("", ":memory:") else None


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    """Switch the driver's own BEGIN off, so that a writing transaction can begin IMMEDIATE."""
    connection.isolation_level = None
    for pragma in SQLITE_PRAGMAS:
        connection.execute(pragma)


def _begin_sqlite(connection: Connection) -> None:
    mode = connection.get_execution_options().get("sqlite_begin", "DEFERRED")
    connection.exec_driver_sql(f"BEGIN {mode}")
