"""One synchronous database layer for the API, the maintenance loops and the workers."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import NullPool

from app.domain.clock import Clock, SystemClock

SQLITE_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=NORMAL",
    "PRAGMA foreign_keys=ON",
    "PRAGMA busy_timeout=30000",
)
POOL_SIZE = 10
POOL_TIMEOUT_S = 5
"""A request that waits longer for a connection is answered 503, not left hanging."""


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
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        pooled: bool = True,
        connect_timeout_s: int = 5,
    ) -> None:
        self.clock = clock or SystemClock()
        self._fixed_clock = clock is not None
        self.engine = _create_engine(url, pooled=pooled, connect_timeout_s=connect_timeout_s)
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        # SQLite's busy handler sleeps and retries, so writers of one process queue here instead.
        self._writer = threading.Lock() if self.is_sqlite else nullcontext()
        self._sessions = sessionmaker(self.engine, expire_on_commit=False)

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Open a session that only reads; it is rolled back at the end."""
        with self._sessions() as session:
            # Closing rolls back too, and unlike rollback() leaves what was read readable.
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Open a writing transaction; commit at the end, roll back on an exception.

        Keep it short: no network call and no hashing inside.
        """
        with self._writer, self._sessions() as session:
            if self.is_sqlite:
                session.connection(execution_options={"sqlite_begin": "IMMEDIATE"})
            yield session
            session.commit()

    def now(self, session: Session) -> datetime:
        """Return the time to stamp rows with."""
        if self._fixed_clock or self.is_sqlite:
            return self.clock.now()
        moment: datetime = session.execute(sa.text("SELECT clock_timestamp()")).scalar_one()
        return moment

    def dispose(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def _create_engine(url: str, *, pooled: bool, connect_timeout_s: int) -> Engine:
    if sa.make_url(url).get_backend_name() == "sqlite":
        return _create_sqlite_engine(url, pooled=pooled)
    arguments = {
        "connect_timeout": connect_timeout_s,
        # A server that vanishes without a word must not hold a heartbeat for the kernel's hours.
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 15_000,
    }
    options: dict[str, Any] = {"connect_args": arguments}
    if pooled:
        options |= {
            "pool_size": POOL_SIZE,
            "max_overflow": POOL_SIZE,
            "pool_timeout": POOL_TIMEOUT_S,
            "pool_pre_ping": True,
        }
    else:
        options["poolclass"] = NullPool
    return sa.create_engine(url, **options)


def _create_sqlite_engine(url: str, *, pooled: bool) -> Engine:
    options: dict[str, Any] = {} if pooled else {"poolclass": NullPool}
    engine = sa.create_engine(url, connect_args={"check_same_thread": False}, **options)
    sa.event.listen(engine, "connect", _prepare_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    """Switch the driver's own BEGIN off, so that a writing transaction can begin IMMEDIATE."""
    connection.isolation_level = None
    for pragma in SQLITE_PRAGMAS:
        connection.execute(pragma)


def _begin_sqlite(connection: Connection) -> None:
    mode = connection.get_execution_options().get("sqlite_begin", "DEFERRED")
    connection.exec_driver_sql(f"BEGIN {mode}")
