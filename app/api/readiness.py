"""Whether this process can serve: checked in the background, not by each request."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from sqlalchemy.exc import SQLAlchemyError

from app.db.schema import current_revision, head_revision
from app.db.session import Database
from app.domain.errors import DebiasError
from app.storage.objects import ObjectStore

CHECK_PERIOD_S = 30.0
FIRST_CHECK_S = 3.0
STOP_S = 5.0
PROBE_KEY = "health/probe"

logger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Readiness:
    """State of each part. The broker may be down: the outbox absorbs it."""

    database: bool
    schema: bool
    store: bool
    broker: bool | None

    @property
    def ready(self) -> bool:
        """Tell whether requests can be served."""
        return self.database and self.schema and self.store

    @property
    def status(self) -> str:
        """`ready`, `degraded` (broker down) or `unavailable`."""
        if not self.ready:
            return "unavailable"
        return "degraded" if self.broker is False else "ready"


class ReadinessMonitor:
    """Writes to the store and asks the broker every 30 s; the database is asked each time."""

    def __init__(
        self,
        database: Database,
        store: ObjectStore,
        *,
        broker_ok: Callable[[], bool] | None,
    ) -> None:
        self._database = database
        self._store = store
        self._broker_ok = broker_ok
        self._store_ok = False
        self._broker_state: bool | None = None
        self._checked = threading.Event()
        self._draining = threading.Event()
        self._thread = threading.Thread(target=self._run, name="readiness", daemon=True)

    def start(self) -> None:
        """Check in the background; wait for the first result, but not for a part that hangs."""
        self._thread.start()
        self._checked.wait(FIRST_CHECK_S)

    def stop(self) -> None:
        """Stop checking; from now on the process is not ready."""
        self._draining.set()
        self._thread.join(STOP_S)

    def run_once(self) -> None:
        """Check store and broker."""
        self._store_ok = self._can_write()
        self._broker_state = self._broker_ok() if self._broker_ok else None

    def current(self) -> Readiness:
        """Return what is known, with the database asked now."""
        reachable, schema = self._ask_database()
        store = self._store_ok and not self._draining.is_set()
        return Readiness(reachable, schema, store, self._broker_state)

    def _ask_database(self) -> tuple[bool, bool]:
        try:
            return True, current_revision(self._database) == head_revision()
        except SQLAlchemyError as exc:
            logger.warning("database_failed", error=str(exc))
            return False, False

    def _can_write(self) -> bool:
        try:
            self._store.put_bytes(PROBE_KEY, b"ok")
        except DebiasError as exc:
            logger.warning("store_failed", error=exc.detail)
            return False
        return True

    def _run(self) -> None:
        self._check()
        self._checked.set()
        while not self._draining.wait(CHECK_PERIOD_S):
            self._check()

    def _check(self) -> None:
        try:
            self.run_once()
        except Exception:  # a dead thread would leave its last answer standing for ever
            logger.exception("readiness_check_failed")
            self._store_ok = False
