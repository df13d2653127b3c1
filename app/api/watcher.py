"""One thread that notices changed jobs, so that no request of a waiting client polls."""

import asyncio
import threading
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from uuid import UUID

import structlog
from sqlalchemy.exc import SQLAlchemyError

from app.db.session import Database
from app.domain.errors import Unavailable
from app.security.scopes import Principal
from app.services.watching import Headway, read_headway, read_live_keys

POLL_S = 0.25
OUTAGE_POLL_S = 1.0
MAX_WATCHES = 1000
MAX_WATCHES_PER_PROJECT = 200
MAX_WATCHES_PER_CALLER = 20
# The last ones go to projects with no more than a caller may have: others leave them something.
KEPT_FOR_SMALL_PROJECTS = 200
FULL_RETRY_S = 10
# A key is looked up again after as many looks at the jobs.
LOOKS_PER_KEY_CHECK = 40

logger = structlog.get_logger()


class Watch:
    """One waiting handler: an event of its loop, set when its job may have changed.

    `with_logs` has it woken by new log lines too.
    """

    def __init__(
        self,
        job_id: UUID,
        principal: Principal,
        loop: asyncio.AbstractEventLoop,
        *,
        with_logs: bool = False,
    ) -> None:
        self.job_id = job_id
        self.principal = principal
        self.with_logs = with_logs
        self.key_is_dead = False
        self._loop = loop
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """Set the event, from any thread."""
        self._loop.call_soon_threadsafe(self._changed.set)

    def end(self) -> None:
        """Wake whoever waits, to end: the key is revoked or has expired."""
        self.key_is_dead = True
        self.wake()

    async def changed(self, timeout_s: float) -> bool:
        """Wait for a change; False when the time is over."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        return True


class JobWatcher:
    """Asks the database once per period for all watched jobs together.

    Now and then it asks for the keys of their watchers too: a stream may be open for an hour, and
    its key was looked at when it began.
    """

    def __init__(self, database: Database, *, poll_s: float = POLL_S) -> None:
        self._database = database
        self._poll_s = poll_s
        self._lock = threading.Lock()
        self._watches: dict[UUID, set[Watch]] = defaultdict(set)
        self._by_caller: Counter[UUID] = Counter()
        self._by_project: Counter[UUID] = Counter()
        self._looks = 0
        self._seen = Headway({}, {})
        self._wanted = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="job-watcher", daemon=True)

    def start(self) -> None:
        """Start watching."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wake all that wait."""
        self._stopping.set()
        self._wanted.set()
        self._wake_all()
        self._thread.join()

    @contextmanager
    def watch(
        self, job_id: UUID, principal: Principal, *, with_logs: bool = False
    ) -> Iterator[Watch]:
        """Watch a job from an async handler.

        Raises
        ------
        Unavailable
            When this process, this project or this key has as many watches as allowed.
        """
        watch = Watch(job_id, principal, asyncio.get_running_loop(), with_logs=with_logs)
        with self._lock:
            self._admit(principal)
            self._watches[job_id].add(watch)
        self._wanted.set()
        try:
            yield watch
        finally:
            with self._lock:
                self._forget(watch)

    def run_once(self) -> int:
        """Look once at all watched jobs; return how many had changed."""
        with self._lock:
            watched = set(self._watches)
            logged = {job_id for job_id in watched if self._followers(job_id)}
        now = read_headway(self._database, watched, logged) if watched else Headway({}, {})
        with self._lock:
            seen, self._seen = self._seen, now
            changed = _differing(watched, seen.events, now.events)
            grown = _differing(logged, seen.logs, now.logs) - changed
            for job_id in changed:
                self._wake(job_id)
            for watch in [watch for job_id in grown for watch in self._followers(job_id)]:
                watch.wake()
        return len(changed | grown)

    def end_dead(self) -> int:
        """End the watches of keys that were revoked or have expired; return how many."""
        with self._lock:
            watches = [watch for of_job in self._watches.values() for watch in of_job]
        asked = {key for watch in watches if (key := watch.principal.key_id) is not None}
        dead = asked - read_live_keys(self._database, asked) if asked else set()
        ended = [watch for watch in watches if watch.principal.key_id in dead]
        for watch in ended:
            watch.end()
        return len(ended)

    def _admit(self, principal: Principal) -> None:
        caller, project = _caller_of(principal), principal.project_id
        free = MAX_WATCHES - self._by_project.total()
        is_small = self._by_project[project] < MAX_WATCHES_PER_CALLER
        if (
            self._by_caller[caller] >= MAX_WATCHES_PER_CALLER
            or self._by_project[project] >= MAX_WATCHES_PER_PROJECT
            or free <= (0 if is_small else KEPT_FOR_SMALL_PROJECTS)
        ):
            raise Unavailable(
                f"Too many open streams: at most {MAX_WATCHES_PER_CALLER} for a key, "
                f"{MAX_WATCHES_PER_PROJECT} for a project and {MAX_WATCHES} in all, the last "
                f"{KEPT_FOR_SMALL_PROJECTS} of them for projects that have few.",
                retry_after_s=FULL_RETRY_S,
            )
        self._by_caller[caller] += 1
        self._by_project[project] += 1

    def _forget(self, watch: Watch) -> None:
        self._by_caller -= Counter([_caller_of(watch.principal)])
        self._by_project -= Counter([watch.principal.project_id])
        self._watches[watch.job_id].discard(watch)
        if not self._watches[watch.job_id]:
            del self._watches[watch.job_id]

    def _followers(self, job_id: UUID) -> list[Watch]:
        return [watch for watch in self._watches.get(job_id, ()) if watch.with_logs]

    def _wake(self, job_id: UUID) -> None:
        for watch in self._watches.get(job_id, ()):
            watch.wake()

    def _wake_all(self) -> None:
        with self._lock:
            for job_id in self._watches:
                self._wake(job_id)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wanted.wait()
            seen = self._look()
            with self._lock:
                if not self._watches:
                    self._wanted.clear()
            self._stopping.wait(self._poll_s if seen else OUTAGE_POLL_S)

    def _look(self) -> bool:
        try:
            self.run_once()
            self._looks += 1
            if self._looks % LOOKS_PER_KEY_CHECK == 0:
                self.end_dead()
        except SQLAlchemyError as exc:
            logger.warning("watch_failed", error=str(exc))
            return False
        except Exception:  # without this thread every open stream would fall silent
            logger.exception("watch_failed")
            return False
        return True


def _caller_of(principal: Principal) -> UUID:
    """Who the smallest limit counts for: the key, or the project without one."""
    return principal.key_id or principal.project_id


def _differing(
    job_ids: Collection[UUID], before: Mapping[UUID, int], after: Mapping[UUID, int]
) -> set[UUID]:
    return {job_id for job_id in job_ids if before.get(job_id) != after.get(job_id)}
