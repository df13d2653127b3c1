"""Let a test decide, at every point where others may come in between, which thread goes on."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy.orm import Session

from app.db.session import Database

TIMEOUT_S = 60.0


class Actor:
    """A thread that stops before every transaction and every call of the store."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._may_go = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.error: BaseException | None = None
        self.done = False
        self._thread.start()

    def go_on(self) -> None:
        """Let it do its next step, and wait until it stops before the one after."""
        if self.done:
            return
        self._may_go.release()
        assert self._stopped.acquire(timeout=TIMEOUT_S), "an actor waits for another"
        if self.error is not None:
            raise self.error

    def stop_here(self) -> None:
        self._stopped.release()
        assert self._may_go.acquire(timeout=TIMEOUT_S), "nobody lets the actor go on"

    def _run(self) -> None:
        assert self._may_go.acquire(timeout=TIMEOUT_S)
        _current.actor = self
        try:
            self._work()
        except BaseException as exc:
            self.error = exc
        self.done = True
        self._stopped.release()


class _Current(threading.local):
    actor: Actor | None = None


_current = _Current()


def stop_here() -> None:
    """Stop if this thread is an actor's."""
    if _current.actor is not None:
        _current.actor.stop_here()


class SteppedDatabase(Database):
    """A database whose transactions are the steps of actors."""

    @contextmanager
    def read(self) -> Iterator[Session]:
        stop_here()
        with super().read() as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        stop_here()
        with super().write() as session:
            yield session
