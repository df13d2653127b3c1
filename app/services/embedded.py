"""The embedded service: database, private Redis and one worker, all below one folder."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import structlog
from filelock import FileLock, Timeout

from app.db.schema import upgrade
from app.db.session import Database
from app.domain.clock import SystemClock
from app.domain.errors import Conflict
from app.services.home import make_home
from app.services.private_redis import STOP_TIMEOUT_S, PrivateRedis
from app.services.projects import ensure_default_project
from app.services.secret_key import keep_secret_key
from app.services.supervision import Keeper, Process
from app.settings import Settings

log = structlog.get_logger()

LOCK_NAME = "serve.lock"
# Beyond the drain: the worker's own shutdown after its child has ended.
WORKER_STOP_MARGIN_S = 10.0


class EmbeddedService:
    """Everything `debias serve` needs beside the API, started and stopped in order.

    Two pipes make sure that nothing is left behind when this process is killed: the worker
    drains when the one is closed, and Redis ends when nobody holds the other any more.

    Parameters
    ----------
    show_admin_key
        Is given the first key as soon as it is made: a start that fails later must not lose it.
    """

    def __init__(self, settings: Settings, *, show_admin_key: Callable[[str], None]) -> None:
        # Absolute, because the worker and the store's URL are given it too.
        self._asked = settings.model_copy(update={"home": settings.home.resolve()})
        self._stack = ExitStack()
        self._worker: Keeper | None = None
        self._redis: Keeper | None = None
        self.settings = self._asked
        self._show_admin_key = show_admin_key

    def __enter__(self) -> "EmbeddedService":
        """Start everything.

        Raises
        ------
        Conflict
            When another service uses this home, or it cannot be written to.
        """
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _start(self) -> None:
        home = self._asked.home
        make_home(home)
        self._lock(home)
        if self._asked.secret_key is None:
            self._use(secret_key=keep_secret_key(home))
        self._prepare_database()
        # Both ends stay open until the end of this process; nothing is ever written.
        alive, _ = self._pipe()
        broker_lifeline, broker_held = self._pipe()
        if self._asked.broker_url is None:
            self._start_redis(home, broker_lifeline)
        self._start_worker(alive, broker_held)

    def _use(self, **decided: object) -> None:
        self.settings = self.settings.model_copy(update=decided)

    def _start_worker(self, alive: int, broker_held: int) -> None:
        environment = _environment(self.settings)
        command = [sys.executable, "-m", "app.cli.main", "worker"]
        command += ["--classes", ",".join(self.settings.device_classes)]
        command += ["--guardian-fd", str(alive)]

        def start() -> Process:
            return subprocess.Popen(  # noqa: S603 - our own command line
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                pass_fds=(alive, broker_held),
                start_new_session=True,
            )

        self._worker = Keeper("worker", start, monotonic=SystemClock().monotonic)
        timeout_s = self.settings.drain_timeout_s + WORKER_STOP_MARGIN_S
        self._stack.callback(self._worker.stop, timeout_s)
        self._worker.start()

    def _lock(self, home: Path) -> None:
        """Hold the home; the kernel lets go of it when this process ends."""
        lock = FileLock(home / LOCK_NAME, timeout=0)
        try:
            lock.acquire()
        except Timeout as exc:
            raise Conflict(
                f"Another service is running on {home}. Stop it, or set DEBIAS_HOME to another "
                "folder."
            ) from exc
        self._stack.callback(lock.release)

    def _prepare_database(self) -> None:
        database = Database(self._asked.resolved_database_url, answer_timeout_s=None)
        try:
            upgrade(database)
            admin_key = ensure_default_project(database).admin_key
        finally:
            database.dispose()
        if admin_key is not None and self._asked.auth_mode == "keys":
            self._show_admin_key(admin_key)

    def _pipe(self) -> tuple[int, int]:
        ends = os.pipe()
        for end in ends:
            self._stack.callback(os.close, end)
        return ends

    def _start_redis(self, home: Path, lifeline: int) -> None:
        redis = PrivateRedis(home, lifeline)
        self._use(broker_url=redis.url)
        self._stack.callback(redis.clean_up)
        self._redis = Keeper("redis", redis.start, monotonic=SystemClock().monotonic)
        self._stack.callback(self._redis.stop, STOP_TIMEOUT_S)
        self._redis.start()


def _environment(settings: Settings) -> dict[str, str]:
    """Environment of the worker: ours, with what was decided here."""
    return {
        **os.environ,
        "DEBIAS_HOME": str(settings.home),
        "DEBIAS_DATABASE_URL": settings.resolved_database_url,
        "DEBIAS_STORE_URL": settings.resolved_store_url,
        "DEBIAS_BROKER_URL": settings.broker_url or "",
    }
