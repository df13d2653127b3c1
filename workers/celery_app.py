"""The Celery worker: a parent that only delivers, and children that do one job each."""

import importlib
import os
import select
import signal
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psutil
import structlog
from celery import Celery, bootsteps, signals
from celery.exceptions import SecurityWarning
from celery.worker import state
from sqlalchemy.exc import SQLAlchemyError

from app.catalog.registry import load_registry
from app.db.schema import require_current
from app.db.session import Database
from app.dispatch.broker import RUN_JOB_TASK, create_celery, queue_of
from app.dispatch.timing import Timing
from app.services.connections import hub_of, store_of
from app.services.secrets import box_of
from app.settings import Settings
from workers.attempt.services import AttemptServices, until_reachable
from workers.disk import WorkerDisk
from workers.fetch import FetchSources
from workers.runtime.devices import resolve_device, use_threads
from workers.runtime.scratch import remove_abandoned
from workers.slot import SlotFacts, WorkerSlot, open_parent_database
from workers.tasks import JobRunner

log = structlog.get_logger()

CHILD_ENVIRONMENT = {
    # Read by transformers when it is imported: models come from the fetching phase only.
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    # Read by OpenMP when torch is imported. Threads that wait by spinning starve each other on a
    # machine that does anything else: measured on two busy cores, a forward pass took 6.9 CPU
    # seconds with spinning threads and 2.0 with sleeping ones.
    "OMP_WAIT_POLICY": "PASSIVE",
}
LLAMA_CLASSES = "transformers.models.llama.modeling_llama"
EXIT_NOT_READY = 72
PIPE_POLL_S = 0.5
# Celery looks after its children every 5 s, and when one closes its sentinel; but then the child
# is often not dead yet, and its successor comes with the next look (measured: 4 s of 5 on
# average, with one task per child).
CHILD_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How one worker process was started.

    `guardian_pipe` is the descriptor of a pipe that its starter holds open: at its end of file
    the worker drains.
    """

    classes: tuple[str, ...]
    device: str
    guardian_pipe: int | None = None


def run_worker(settings: Settings, options: WorkerOptions) -> int:
    """Run a worker until it is told to stop; return its exit code."""
    if settings.broker_url is None:
        raise ValueError("no broker: set DEBIAS_BROKER_URL")
    # Celery warns of root because of pickled messages; ours are JSON and nothing else is taken.
    warnings.simplefilter("ignore", SecurityWarning)
    process = WorkerProcess(settings, options)
    process.prepare()
    app = process.create_app()
    worker = app.Worker(
        pool="prefork",
        concurrency=1,
        max_tasks_per_child=settings.jobs_per_child,
        queues=[queue_of(name) for name in options.classes],
        hostname=f"worker-{process.slot.identity.id.hex[:12]}@{process.slot.identity.host}",
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        loglevel=settings.log_level.upper(),
        optimization="fair",
        quiet=True,
    )
    worker.start()
    return int(worker.exitcode or 0)


class WorkerProcess:
    """Both sides of a worker: what the parent does by itself, and what its children build."""

    def __init__(self, settings: Settings, options: WorkerOptions) -> None:
        self._settings = settings
        self._options = options
        self._timing = Timing.from_lease(settings.lease_ttl_s)
        self._parent_pid = os.getpid()
        self._children_killed = False
        self._in_database = False
        self._draining_unsaid = False
        self._shutting_down = False
        self._runner: JobRunner | None = None
        self._tasks_left = settings.jobs_per_child
        facts = SlotFacts(
            classes=options.classes,
            scratch_dir=settings.resolved_scratch_dir,
            scratch_min_free_bytes=settings.scratch_min_free_bytes,
        )
        self._disk = WorkerDisk(
            settings.resolved_scratch_dir,
            settings.scratch_min_free_bytes,
            hub_cache_dir=settings.hub_cache_dir,
        )
        self._database = open_parent_database(settings.resolved_database_url)
        self.slot = WorkerSlot(self._database, facts, self._timing)

    def prepare(self) -> None:
        """Check the schema, and clean up after killed predecessors."""
        require_current(self._database)
        self.slot.forget_predecessors()

    def create_app(self) -> Celery:
        """Make the Celery application with our task, timers and signal handlers."""
        broker_url = self._settings.broker_url or ""
        app = create_celery(broker_url, device_classes=self._settings.device_classes)
        app.task(name=RUN_JOB_TASK)(self._run_job)
        app.steps["consumer"].add(_timer_step(self))
        # Strong references: the handlers are bound methods of an object nobody else keeps.
        signals.worker_process_init.connect(self._init_child, weak=False)
        signals.task_failure.connect(self._on_task_failure, weak=False)
        signals.worker_shutting_down.connect(self._on_shutting_down, weak=False)
        signals.worker_shutdown.connect(self._on_shutdown, weak=False)
        # Logging is set up by the command line, not by Celery.
        signals.setup_logging.connect(_keep_logging, weak=False)
        return app

    # In the child

    def _init_child(self, **_: object) -> None:
        """Get ready for a job. A worker whose children cannot do that ends, to be restarted."""
        try:
            self._prepare_child()
        except Exception:  # Celery would log it and go on with a child that is of no use
            log.exception("child_not_ready")
            os.kill(self._parent_pid, signal.SIGTERM)
            os._exit(EXIT_NOT_READY)

    def _prepare_child(self) -> None:
        """Import what jobs need while idle, and open what must not cross a fork."""
        os.environ.update(CHILD_ENVIRONMENT)
        signal.signal(signal.SIGTERM, self._on_child_sigterm)
        preload(self._settings)
        use_threads(self._settings.torch_threads)
        removed = remove_abandoned(self._settings.resolved_scratch_dir)
        if removed:
            log.info("scratch_removed", folders=removed)
        services = self._build_services()
        self._runner = JobRunner(services)
        self._announce(services)

    def _announce(self, services: AttemptServices) -> None:
        """Offer this child for a job; it waits for a database that is away."""
        database = services.database

        def write() -> None:
            with database.write() as session:
                self.slot.child_ready(session, services.device, now=database.now(session))

        until_reachable(write, "announce", services=services)

    def _run_job(self, job_id: str, dispatch: int) -> None:
        if self._runner is None:
            raise RuntimeError("the child was not initialised")
        self._tasks_left -= 1
        try:
            self._runner.run(UUID(job_id), dispatch)
        finally:
            if self._tasks_left > 0:
                self._announce(self._runner.services)

    def _build_services(self) -> AttemptServices:
        settings = self._settings
        return AttemptServices(
            database=Database(settings.resolved_database_url),
            store=store_of(settings),
            registry=load_registry(settings.extra_methods),
            timing=self._timing,
            worker=self.slot.identity,
            scratch_dir=settings.resolved_scratch_dir,
            scratch_min_free_bytes=settings.scratch_min_free_bytes,
            fetch=_fetch_sources(settings),
            secrets=box_of(settings),
            device=resolve_device(self._options.device),
            is_orphaned=lambda: os.getppid() != self._parent_pid,
        )

    def _on_child_sigterm(self, _number: int, _frame: object) -> None:
        """Celery's cold shutdown ends its children: give the job back first."""
        if self._runner is None or not self._runner.drain():
            raise SystemExit(0)

    # In the parent, on its main thread

    def every_period(self) -> None:
        """Write the worker's row; end a worker that is to drain, or gets no more messages."""
        drain_asked = False
        self._make_room()
        with self._using_database("report"):
            drain_asked = self.slot.report()
        if drain_asked:
            self._end_softly("drain_requested")
        with self._using_database("overlooked"):
            # A message that the parent holds for its child waits for nothing else.
            if not state.reserved_requests and self.slot.is_overlooked():
                self._end_softly("not_consuming")

    def _make_room(self) -> None:
        """Let cached models give way while too little is free: no job comes to do it meanwhile."""
        try:
            self._disk.room_for()
        except OSError as exc:
            log.warning("disk_not_measured", reason=str(exc))

    def check_guardian(self) -> None:
        """Drain when the process that started this one is gone."""
        pipe = self._options.guardian_pipe
        if pipe is not None and select.select([pipe], [], [], 0)[0]:
            self._end_softly("guardian_gone")

    def _end_softly(self, reason: str) -> None:
        """Do what SIGTERM does, once: a second SIGTERM would end the child at once."""
        if not self._shutting_down:
            log.warning("draining", reason=reason)
            os.kill(self._parent_pid, signal.SIGTERM)

    @property
    def period_s(self) -> float:
        """How often `every_period` is due."""
        return self._timing.worker_seen_s

    def _on_task_failure(
        self, args: Sequence[Any] = (), exception: object = None, **_: object
    ) -> None:
        ours = os.getpid() == self._parent_pid and len(args) == 2
        if not ours or self._children_killed:
            return
        with self._using_database("child_lost"):
            self.slot.child_lost(UUID(args[0]), int(args[1]), str(exception))

    def _on_shutting_down(self, **_: object) -> None:
        """Let the child know, and see to it that it ends in time."""
        if os.getpid() != self._parent_pid:
            return
        self._shutting_down = True
        # Celery itself would wait for the child without limit; a second SIGTERM is for the hasty.
        signal.signal(signal.SIGALRM, self._kill_children)
        signal.signal(signal.SIGTERM, self._kill_children)
        signal.setitimer(signal.ITIMER_REAL, self._settings.drain_timeout_s)
        # This runs as a signal handler, perhaps in the middle of a transaction of this very
        # thread, whose locks a second one would wait for without end.
        self._draining_unsaid = True
        if not self._in_database:
            self._say_draining()

    def _say_draining(self) -> None:
        self._draining_unsaid = False
        with self._using_database("draining"):
            self.slot.report(state="draining")

    @contextmanager
    def _using_database(self, action: str) -> Iterator[None]:
        """Mark a use of the database, and go on without the row where it does not answer."""
        self._in_database = True
        try:
            yield
        except SQLAlchemyError as exc:
            log.warning("database_unreachable", action=action, reason=str(exc))
        finally:
            self._in_database = False
        if self._draining_unsaid:
            self._say_draining()

    def _kill_children(self, _number: int, _frame: object) -> None:
        """End children that have not drained; their job is given back on the way out."""
        self._children_killed = True
        for child in psutil.Process().children(recursive=True):
            child.kill()

    def _on_shutdown(self, **_: object) -> None:
        if os.getpid() != self._parent_pid:
            return
        signal.setitimer(signal.ITIMER_REAL, 0)
        with self._using_database("leave"):
            self.slot.leave()


def _fetch_sources(settings: Settings) -> FetchSources:
    return FetchSources(
        hub_cache_dir=settings.hub_cache_dir,
        hub_cache_max_bytes=settings.hub_cache_max_bytes,
        models_dir=settings.models_dir,
        hub=hub_of(settings),
    )


def _timer_step(process: WorkerProcess) -> type[bootsteps.StartStopStep]:
    """Make the Celery step whose timers run on the parent's main loop.

    Not a thread: a fork while another thread holds a lock can hang the child.
    """

    class SlotTimers(bootsteps.StartStopStep):  # type: ignore[misc]
        requires = ("celery.worker.consumer.tasks:Tasks",)

        def __init__(self, parent: Any, **kwargs: Any) -> None:
            self._timers: list[Any] = []
            super().__init__(parent, **kwargs)

        def start(self, parent: Any) -> None:
            repeat = parent.timer.call_repeatedly
            self._timers = [
                repeat(process.period_s, process.every_period),
                repeat(PIPE_POLL_S, process.check_guardian),
                repeat(CHILD_POLL_S, parent.pool.maintain_pool),
            ]

        def stop(self, _parent: Any) -> None:
            for timer in self._timers:
                timer.cancel()

    return SlotTimers


def preload(settings: Settings) -> None:
    """Import what the next job will need; by default that is any engine on offer.

    An engine that cannot be imported fails its own jobs, with the reason, and no others.
    """
    if settings.worker_preload is not None:
        for module in settings.worker_preload:
            importlib.import_module(module)
        return
    methods = load_registry(settings.extra_methods).newest()
    for module in (*sorted(method.engine.partition(":")[0] for method in methods), LLAMA_CLASSES):
        try:
            importlib.import_module(module)
        except ImportError as exc:
            log.warning("preload_failed", module=module, reason=str(exc))


def _keep_logging(**_: object) -> None:
    """Keep Celery from setting up logging: any receiver of the signal does."""
