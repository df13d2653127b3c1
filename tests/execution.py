"""Jobs, workers and attempts for tests of dispatch and execution, without Celery or HTTP."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn
from uuid import UUID

import sqlalchemy as sa

from app.catalog.registry import load_registry
from app.catalog.testkit.fake import FakeConfig
from app.db.repositories.execution import Claim, WorkerIdentity, claim_job, dispatch_next
from app.db.session import Database
from app.db.tables import Job, JobAttempt, JobEvent, Worker
from app.db.transition import create_job
from app.db.uow import UnitOfWork, unit_of_work
from app.dispatch.broker import BrokerUnavailable
from app.dispatch.timing import Timing
from app.domain.clock import unix_ms
from app.domain.ids import new_id
from app.domain.sources import PathSource
from app.domain.specs import ResolvedOutputs, ResolvedResources, ResolvedSpec
from app.security.scopes import GRANTABLE, Principal
from app.services.model_intake import IntakeSettings, inspect_source
from app.storage.objects import ObjectStore, open_store
from workers.attempt.run import Attempt
from workers.attempt.services import AttemptServices
from workers.fetch import FetchSources
from workers.testkit.models import write_tiny_model

TIMING = Timing.from_lease(3.0)
FAKE = "app.catalog.testkit.fake"


@dataclass
class RecordingBroker:
    """Keeps what was published; refuses while `down`."""

    messages: list[tuple[UUID, int, str]] = field(default_factory=list)
    down: bool = False

    def publish(self, job_id: UUID, *, dispatch: int, device_class: str) -> None:
        if self.down:
            raise BrokerUnavailable("down")
        self.messages.append((job_id, dispatch, device_class))

    def ping(self) -> bool:
        return not self.down

    def close(self) -> None:
        pass


def resolved_spec(
    *, model: dict[str, Any] | None = None, outputs: dict[str, Any] | None = None, **config: Any
) -> ResolvedSpec:
    """A spec of the fake method; keyword arguments are its config."""
    return ResolvedSpec(
        kind="debias",
        name=None,
        method="fake",
        method_version="1.0.0",
        model=model or {"type": "path", "name": "tiny", "files": []},
        config=FakeConfig(**config).model_dump(mode="json"),
        resources=ResolvedResources(
            device_class="cpu",
            dtype="auto",
            max_runtime_s=600,
            stall_timeout_s=600,
            checkpoint_every_s=0,
        ),
        outputs=ResolvedOutputs(
            **{
                "register_as": None,
                "formats": ("safetensors",),
                "plots": True,
                "keep_checkpoints": 0,
                **(outputs or {}),
            }
        ),
        max_attempts=3,
        seed=0,
        priority=0,
        labels={},
    )


def queue_job(
    database: Database, project_id: UUID, spec: ResolvedSpec | None = None, **columns: Any
) -> UUID:
    """Insert a queued job."""
    spec = spec or resolved_spec()
    values: dict[str, Any] = {
        "project_id": project_id,
        "kind": "debias",
        "method": spec.method,
        "method_version": spec.method_version,
        "spec": {},
        "resolved_spec": spec.model_dump(mode="json"),
        "spec_hash": spec.sha256(),
        "device_class": "cpu",
        "max_attempts": spec.max_attempts,
        "max_runtime_s": spec.resources.max_runtime_s,
        "labels": {},
        **columns,
    }
    with database.write() as session:
        return create_job(session, now=database.now(session), columns=values).id


def add_worker(
    database: Database, *, classes: Sequence[str] = ("cpu",), **columns: Any
) -> WorkerIdentity:
    """Insert a live worker."""
    with database.write() as session:
        now = database.now(session)
        worker_id = new_id(unix_ms(now))
        values: dict[str, Any] = {
            "host": "host",
            "boot_id": "boot",
            "pid": 1,
            "device": "cpu",
            "versions": {},
            "state": "ready",
            "last_seen_at": now,
            **columns,
        }
        session.add(Worker(id=worker_id, created_at=now, classes=list(classes), **values))
    return WorkerIdentity(worker_id, "host", 1)


def dispatch_one(database: Database, device_class: str = "cpu") -> tuple[UUID, int] | None:
    """Dispatch the next job without publishing it."""
    with database.write() as session:
        job = dispatch_next(session, device_class, now=database.now(session))
    return None if job is None else (job.job_id, job.dispatch)


def claim(
    database: Database,
    job_id: UUID,
    dispatch: int,
    worker: WorkerIdentity,
    *,
    lease_ttl_s: float = TIMING.lease_ttl_s,
) -> Claim | None:
    """Claim as a worker does."""
    with database.write() as session:
        return claim_job(
            session,
            job_id,
            dispatch,
            worker=worker,
            now=database.now(session),
            lease_ttl_s=lease_ttl_s,
        )


def claim_next(database: Database, worker: WorkerIdentity, **options: Any) -> Claim:
    """Dispatch and claim the next job."""
    dispatched = dispatch_one(database)
    assert dispatched is not None
    claimed = claim(database, *dispatched, worker, **options)
    assert claimed is not None
    return claimed


def spoil(database: Database, job_id: UUID) -> None:
    """Leave a job's row such that nobody can read it: its start is no moment to Python."""
    with database.write() as session:
        session.execute(
            sa.text("UPDATE jobs SET started_at = 'infinity' WHERE id = :id").bindparams(
                sa.bindparam("id", job_id, sa.Uuid)
            )
        )


def read_job(database: Database, job_id: UUID) -> Job:
    with database.read() as session:
        return session.execute(sa.select(Job).where(Job.id == job_id)).scalar_one()


def read_attempts(database: Database, job_id: UUID) -> list[JobAttempt]:
    with database.read() as session:
        statement = sa.select(JobAttempt).where(JobAttempt.job_id == job_id)
        return list(session.execute(statement.order_by(JobAttempt.number)).scalars())


def read_events(database: Database, job_id: UUID) -> list[JobEvent]:
    with database.read() as session:
        statement = sa.select(JobEvent).where(JobEvent.job_id == job_id)
        return list(session.execute(statement.order_by(JobEvent.seq)).scalars())


@contextmanager
def as_client(database: Database, project_id: UUID) -> Iterator[UnitOfWork]:
    """Change jobs of a project as its API does, in one transaction."""
    principal = Principal(project_id, None, frozenset(GRANTABLE))
    with unit_of_work(database, principal, write=True) as u:
        yield u


class ProcessEnded(BaseException):
    """Stands for `os._exit`: nothing in an attempt may catch it."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def raise_instead_of_exit(code: int) -> NoReturn:
    raise ProcessEnded(code)


class Workshop:
    """Everything for attempts in this process: a store, a model and a worker."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database = database
        self.folder = folder
        self.models = folder / "models"
        write_tiny_model(self.models / "tiny")
        self.pin("tiny")
        (folder / "objects").mkdir()
        self.store: ObjectStore = open_store(f"file://{folder / 'objects'}")
        self.worker = add_worker(database)
        self._scratch = (folder / f"scratch-{number}" for number in itertools.count())

    def pin(self, name: str) -> None:
        """Have the next jobs work on the model of this folder below `models`."""
        intake = IntakeSettings(
            models_dir=self.models, hub=None, cache_dir=self.folder / "cache", hub_orgs=()
        )
        self.pinned = dict(inspect_source(PathSource(name), settings=intake).pinned)

    def queue(
        self, project_id: UUID, *, outputs: dict[str, Any] | None = None, **config: Any
    ) -> UUID:
        """Queue a fake job on the tiny model."""
        spec = resolved_spec(model=self.pinned, outputs=outputs, **config)
        return queue_job(self.database, project_id, spec)

    def services(self, **changes: Any) -> AttemptServices:
        """Services as a worker's child builds them."""
        values: dict[str, Any] = {
            "database": self.database,
            "store": self.store,
            "registry": load_registry([FAKE]),
            "timing": TIMING,
            "worker": self.worker,
            "scratch_dir": next(self._scratch),
            "scratch_min_free_bytes": 0,
            "fetch": FetchSources(
                hub_cache_dir=self.folder / "cache", models_dir=self.models, hub=None
            ),
            "device": "cpu",
            "capture_streams": False,
            "exit_now": raise_instead_of_exit,
            **changes,
        }
        return AttemptServices(**values)

    def run_next(self, **changes: Any) -> Claim:
        """Dispatch, claim and run the next job; waits for no back-off."""
        with self.database.write() as session:
            now = self.database.now(session)
            session.execute(sa.update(Job).values(run_after=now))
        claimed = claim_next(self.database, self.worker)
        Attempt(self.services(**changes), claimed).run()
        return claimed
