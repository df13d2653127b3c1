"""What the databases say of a running service: connections, and transactions a second."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import LiteralString

import psutil
import psycopg
from psycopg import sql

from tests.service import Service

LOOK_S = 5.0


class DatabaseProbe:
    """Asks the database in use; SQLite knows no statistics, so there some answers are None."""

    def __init__(self, service: Service, apis: Sequence[psutil.Process]) -> None:
        url = service.environment.get("DEBIAS_DATABASE_URL", "")
        self._dsn = url.replace("+psycopg", "") if url.startswith("postgresql") else None
        self._file = Path(service.home) / "debias.db"
        self._apis = apis

    def connections(self) -> int:
        """Count the open connections of the API."""
        if self._dsn is None:
            opened = (found for api in self._apis for found in api.open_files())
            return sum(Path(found.path) == self._file for found in opened)
        statement = (
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return self._ask(statement)

    def transactions_a_second(self) -> float | None:
        """Count transactions of the whole database for a while, without our own look."""
        if self._dsn is None:
            return None
        return rate_of(self._transactions, LOOK_S)

    def _transactions(self) -> int:
        return self._ask(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database "
            "WHERE datname = current_database()"
        )

    def _ask(self, statement: LiteralString) -> int:
        with psycopg.connect(self._dsn or "", autocommit=True) as connection:
            row = connection.execute(sql.SQL(statement)).fetchone()
            return int(row[0]) if row else 0


def cpu_s(processes: Sequence[psutil.Process]) -> float:
    """CPU seconds that some processes have used together."""
    times = [process.cpu_times() for process in processes]
    return float(sum(one.user + one.system for one in times))


def cpu_share(processes: Sequence[psutil.Process], look_s: float = LOOK_S) -> float:
    """Cores that some processes use together."""
    return rate_of(lambda: cpu_s(processes), look_s)


def rate_of(count: Callable[[], float], look_s: float) -> float:
    """How fast a counter rises, a second."""
    before, began = count(), time.monotonic()
    time.sleep(look_s)
    return (count() - before) / (time.monotonic() - began)
