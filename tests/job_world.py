"""A whole deployment in one thread: real dispatch, claims, attempts and reaping, fake time.

Nothing runs by itself here. A test lets each part take its next step, in any order, as often as
it likes, and lets parts stand still, die, or come back with what they believed long ago.
"""

import random
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from app.catalog.registry import load_registry
from app.db.repositories.execution import Claim
from app.db.schema import upgrade
from app.db.session import Database
from app.db.transition import DISPATCH_TOPIC
from app.dispatch.deadlines import Deadlines
from app.dispatch.dispatcher import Dispatcher
from app.dispatch.outbox import Relay
from app.dispatch.reaper import Reaper
from app.domain.errors import InvalidState, JobErrorCode, JobFailure
from app.domain.specs import ResolvedSpec
from app.domain.states import Phase
from app.schemas.jobs import JobPatch, RetryJobRequest
from app.services import jobs
from app.settings import Settings
from app.storage.objects import open_store
from tests.clock import FakeClock
from tests.execution import (
    FAKE,
    TIMING,
    ProcessEnded,
    RecordingBroker,
    as_client,
    claim,
    queue_job,
    raise_instead_of_exit,
)
from tests.fixtures.database import make_project
from workers.attempt.points import PointStore
from workers.attempt.publish import Publication, Publisher
from workers.attempt.run import Attempt
from workers.attempt.services import AttemptServices
from workers.fetch import FetchSources
from workers.runtime.context import MethodResult, Stopped
from workers.runtime.scratch import ScratchLayout
from workers.slot import SlotFacts, WorkerSlot

MAX_RUNNING = 2
MAX_ATTEMPTS = 2
WORKERS = 3
METHODS = load_registry([FAKE])
SETTINGS = Settings(_env_file=None)
EMPTY_RESULT = MethodResult(before={}, after={}, summary=())

_template: list[Path] = []


class TickingClock(FakeClock):
    """Never shows the same time twice, so that order by time is order of events."""

    def now(self) -> Any:
        self.advance(0.001)
        return super().now()


@dataclass
class CrashingBroker(RecordingBroker):
    """Can also take the publishing process down, before or after it has the message."""

    crash: str | None = None

    def publish(self, job_id: UUID, *, dispatch: int, device_class: str) -> None:
        if self.crash == "before":
            raise ProcessEnded(9)
        super().publish(job_id, dispatch=dispatch, device_class=device_class)
        if self.crash == "after":
            raise ProcessEnded(9)


class SteppedAttempt(Attempt):
    """A real attempt whose engine does what the test says, in the test's thread."""

    def __init__(self, services: AttemptServices, claimed: Claim, folder: Path) -> None:
        super().__init__(services, claimed)
        self.claim = claimed
        self.dead = False
        self.worker = services.worker
        self._folder = folder
        self._engine: Callable[[], None] = lambda: None

    @property
    def told_to_stop(self) -> bool:
        return self._switch.is_set()

    def beat(self) -> None:
        self._alive(self._heartbeat.tick)

    def enter(self, phase: Phase) -> None:
        self._journal.enter_phase(phase)

    def keep_point(self, step: int) -> None:
        points = PointStore(
            self._journal,
            self.claim,
            Path(tempfile.mkdtemp(dir=self._folder)),
            storage=self._storage,
            engine_version="fake@1.0.0",
        )
        self._engine = lambda: points.save_step(self._journal.phase, step, {}, {"step": step})
        self._alive(lambda: self._settle(self._engine))

    def succeed(self) -> None:
        """Come to the end of the work, and publish."""

        def publish() -> None:
            publication = Publication(
                spec=ResolvedSpec.model_validate(self.claim.resolved_spec),
                result=EMPTY_RESULT,
                measured={},
                usage={},
            )
            Publisher(self._storage, self._journal, self.claim).commit(
                publication, [], self._folder
            )

        self._end_by(publish)

    def fail(self, *, retryable: bool) -> None:
        failure = JobFailure(JobErrorCode.UPLOAD_FAILED, "m", "h", retryable=retryable)
        self._end_by(lambda: _raise(failure))

    def stop(self) -> None:
        """Do what the switch asks for."""
        self._end_by(lambda: _raise(Stopped()))

    def _succeed(self, layout: ScratchLayout) -> None:
        self._engine()

    def _end_by(self, engine: Callable[[], None]) -> None:
        if self._journal.closed:
            return
        self._engine = engine
        self._alive(lambda: self._settle(lambda: self._work(ScratchLayout.__new__(ScratchLayout))))
        self.dead = True

    def _alive(self, action: Callable[[], None]) -> None:
        """Act unless this process has ended before, and notice when it ends now."""
        if self.dead:
            return
        try:
            action()
        except ProcessEnded:
            self.dead = True


@dataclass
class JobWorld:
    """The deployment. Every method is one step of one of its parts."""

    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="job-world-")))
    clock: TickingClock = field(default_factory=TickingClock)
    broker: CrashingBroker = field(default_factory=CrashingBroker)
    jobs: list[UUID] = field(default_factory=list)
    attempts: list[SteppedAttempt] = field(default_factory=list)

    def __post_init__(self) -> None:
        path = self.folder / "life.db"
        shutil.copy2(_migrated(), path)
        self.database = Database(f"sqlite:///{path}", clock=self.clock)
        # What a crash of the machine would lose is of no interest here, and this is fast.
        self.rows = sqlite3.connect(path, isolation_level=None)
        (self.folder / "objects").mkdir()
        self.store = open_store(f"file://{self.folder / 'objects'}")
        self.project = make_project(self.database, max_running=MAX_RUNNING)
        self.dispatchers = [self._dispatcher() for _ in range(2)]
        self.relay = Relay(
            self.database,
            {DISPATCH_TOPIC: lambda _: self.dispatchers[0].run_once()},
            timing=TIMING,
            rng=random.Random(0),
        )
        self.reaper = Reaper(self.database, timing=TIMING, rng=random.Random(0))
        self.deadlines = Deadlines(self.database)
        self.slots = [self._slot() for _ in range(WORKERS)]

    def close(self) -> None:
        self.rows.close()
        self.database.dispose()
        shutil.rmtree(self.folder)

    # Clients

    def create(self) -> None:
        self.jobs.append(queue_job(self.database, self.project, max_attempts=MAX_ATTEMPTS))

    def ask(self, action: str, job_id: UUID) -> bool:
        """Send one request; False when it was refused because of the job's state."""
        calls: dict[str, Callable[[Any], object]] = {
            "cancel": lambda u: jobs.cancel_job(u, job_id, keep_checkpoint=False),
            "pause": lambda u: jobs.pause_job(u, job_id, METHODS),
            "resume": lambda u: jobs.resume_job(u, job_id, SETTINGS),
            "retry": lambda u: jobs.retry_job(u, job_id, RetryJobRequest(), SETTINGS),
            "delete": lambda u: jobs.delete_job(u, job_id, expected=None),
            "patch": lambda u: jobs.patch_job(u, job_id, JobPatch(priority=-1), expected=None),
        }
        try:
            with as_client(self.database, self.project) as client:
                calls[action](client)
        except InvalidState:
            return False
        return True

    # Dispatch

    def dispatch(self, dispatcher: int, *, down: bool, crash: str | None) -> None:
        self.broker.down, self.broker.crash = down, crash
        try:
            self.dispatchers[dispatcher].run_once()
        except ProcessEnded:
            self.dispatchers[dispatcher] = self._dispatcher()
        finally:
            self.broker.down, self.broker.crash = False, None

    def relay_once(self) -> int:
        return self.relay.run_once()

    # Workers

    def deliver(self, message: int, slot: int) -> SteppedAttempt | None:
        """Bring a message to a worker, for the first time or once more."""
        job_id, dispatch, _ = self.broker.messages[message % len(self.broker.messages)]
        worker = self.slots[slot]
        claimed = claim(self.database, job_id, dispatch, worker.identity)
        if claimed is None:
            return None
        attempt = SteppedAttempt(self._services(worker), claimed, self.folder)
        self.attempts.append(attempt)
        return attempt

    def next_child(self, slot: int) -> None:
        """A fresh child says that it waits for a job."""
        with self.database.write() as session:
            self.slots[slot].child_ready(session, "cpu", now=self.database.now(session))

    def report(self, slot: int) -> None:
        self.slots[slot].report()

    def notice_death(self, attempt: SteppedAttempt) -> None:
        """The child dies and its parent sees it."""
        attempt.dead = True
        slot = self._slot_of(attempt)
        if slot is not None:
            slot.child_lost(attempt.claim.job_id, attempt.claim.dispatch, "signal 11 (SIGSEGV)")

    def kill_worker(self, slot: int) -> None:
        """Parent and child are gone at once; a supervisor starts another."""
        for attempt in self.attempts:
            if self._slot_of(attempt) is self.slots[slot]:
                attempt.dead = True
        self.slots[slot] = self._slot()

    def drain(self, slot: int, *, killed: bool) -> None:
        """The worker is told to stop; its child is given no time where it is told twice."""
        self.slots[slot].report(state="draining")
        for attempt in self.attempts:
            if self._slot_of(attempt) is self.slots[slot] and not attempt.dead:
                attempt.drain()
                if killed:
                    attempt.dead = True
                else:
                    attempt.beat()
                    attempt.stop()
        self.slots[slot].leave()
        self.slots[slot] = self._slot()

    def settle(self) -> None:
        """Let everything go its way, with nothing going wrong any more."""
        for attempt in self.attempts:
            attempt.dead = True  # what is still under way now never comes back
        self.slots = [self._slot() for _ in range(WORKERS)]
        # Where the clock was set back, times that were written before are still to come.
        self.clock.advance(48 * 3600.0)
        for _ in range(12):
            self.clock.advance(TIMING.reaper_s)
            self.reaper.run_once()
        for _ in range(40):
            if not self._moving():
                return
            self._settle_a_little()
        raise AssertionError(f"does not settle: {self._moving()}")

    def _settle_a_little(self) -> None:
        self.clock.advance(TIMING.backoff_max_s)
        for number in range(WORKERS):
            self.next_child(number)
            self.report(number)
        sent_before = len(self.broker.messages)
        while self.relay_once():
            pass
        self.dispatch(1, down=False, crash=None)
        for number in range(sent_before, len(self.broker.messages)):
            attempt = self.deliver(number, number % WORKERS)
            if attempt is not None:
                attempt.beat()
                attempt.stop() if attempt.told_to_stop else attempt.succeed()

    def _moving(self) -> list[Any]:
        query = "SELECT id, status FROM jobs WHERE status IN ('queued', 'running', 'cancelling')"
        return self.rows.execute(query).fetchall()

    def _dispatcher(self) -> Dispatcher:
        return Dispatcher(self.database, self.broker, timing=TIMING, device_classes=("cpu",))

    def _slot(self) -> WorkerSlot:
        facts = SlotFacts(classes=("cpu",), scratch_dir=self.folder, scratch_min_free_bytes=0)
        slot = WorkerSlot(self.database, facts, TIMING)
        with self.database.write() as session:
            slot.child_ready(session, "cpu", now=self.database.now(session))
        return slot

    def _slot_of(self, attempt: SteppedAttempt) -> WorkerSlot | None:
        found = [s for s in self.slots if s.identity == attempt.worker]
        return found[0] if found else None

    def _services(self, slot: WorkerSlot) -> AttemptServices:
        return AttemptServices(
            database=self.database,
            store=self.store,
            registry=METHODS,
            timing=TIMING,
            worker=slot.identity,
            scratch_dir=self.folder,
            scratch_min_free_bytes=0,
            fetch=FetchSources(hub_cache_dir=self.folder, models_dir=self.folder, hub=None),
            device="cpu",
            capture_streams=False,
            exit_now=raise_instead_of_exit,
        )


def _raise(exc: Exception) -> None:
    raise exc


def _migrated() -> Path:
    """A database at the newest schema, made once a process."""
    if not _template:
        path = Path(tempfile.mkdtemp(prefix="job-world-")) / "template.db"
        database = Database(f"sqlite:///{path}", pooled=False)
        upgrade(database)
        with database.engine.connect() as connection:
            connection.exec_driver_sql("ROLLBACK")
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.exec_driver_sql("BEGIN")
        database.dispose()
        _template.append(path)
    return _template[0]
