"""PostgreSQL that never keeps a caller waiting without end, whatever became of the server."""

import math
import select
from typing import Any, TypeVar

import psycopg
import sqlalchemy as sa
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus
from sqlalchemy.pool import ConnectionPoolEntry

T = TypeVar("T")

# Of its own accord the server ends a statement that takes too long. The client's own limit is for
# a server that does not even do that any more, and leaves it this much time.
SILENCE_FACTOR = 1.5
# An outsider's lock on a table is answered with an error before a statement is at its limit.
LOCK_SHARE = 0.5
# A process that was suspended in the middle of a transaction must not keep its locks: nobody
# could take over its job. Transactions of this service are idle for milliseconds.
IDLE_IN_TRANSACTION_S = 30.0
POLL_S = 0.1


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that is given up when the server falls silent.

    A stopped server keeps its sockets open and its kernel goes on acknowledging, so neither
    keep-alives nor `tcp_user_timeout` ever notice: without this limit a read waits for ever.
    """

    silence_s = math.inf

    def wait(self, gen: PQGen[T], interval: float = POLL_S, timeout: float | None = None) -> T:
        """Drive an operation to its end, or raise OperationalError and close the connection."""
        if timeout is None and math.isfinite(self.silence_s):
            timeout = self.silence_s
        try:
            return super().wait(gen, interval, timeout)
        except psycopg.OperationalError:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                # A late answer must not be taken for that of a later statement.
                self.pgconn.finish()
            raise


def bound_waiting(engine: sa.Engine, answer_timeout_s: float) -> None:
    """Have every connection of an engine give up a statement after `answer_timeout_s`."""

    def connect(_dialect: object, _record: object, arguments: Any, options: Any) -> Any:
        connection = BoundedConnection.connect(*arguments, **options)
        connection.silence_s = answer_timeout_s * SILENCE_FACTOR
        return connection

    def limit(connection: psycopg.Connection[Any], _record: object) -> None:
        connection.execute(
            "SELECT set_config('statement_timeout', %s, false),"
            " set_config('lock_timeout', %s, false),"
            " set_config('idle_in_transaction_session_timeout', %s, false)",
            [
                _milliseconds(answer_timeout_s),
                _milliseconds(answer_timeout_s * LOCK_SHARE),
                _milliseconds(IDLE_IN_TRANSACTION_S),
            ],
        )
        connection.commit()

    sa.event.listen(engine, "do_connect", connect)
    sa.event.listen(engine, "connect", limit)


def refuse_closed_connections(engine: sa.Engine) -> None:
    """Have the pool give out no idle connection that the server has closed.

    One with something to read was told goodbye, by the server or by the kernel. To ask the server
    is a round trip for each transaction, and finds more only where a network drops what it carries
    without a word: there the first transaction fails, and the pool begins anew.
    """

    def note_new(_connection: object, record: ConnectionPoolEntry) -> None:
        record.info["is_new"] = True

    def check(
        connection: psycopg.Connection[Any], record: ConnectionPoolEntry, _proxy: object
    ) -> None:
        # A new one is for the statement to find out: the pool would give up on a second refusal.
        if record.info.pop("is_new", False):
            return
        if connection.closed or _has_something_to_read(connection):
            raise sa.exc.InvalidatePoolError("the server has closed the connection")

    sa.event.listen(engine, "connect", note_new)
    sa.event.listen(engine, "checkout", check)


def _has_something_to_read(connection: psycopg.Connection[Any]) -> bool:
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _milliseconds(seconds: float) -> str:
    return str(round(seconds * 1000))
