"""One transaction, or one look, of one principal: session, repositories and the time."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from sqlalchemy import ColumnElement
from sqlalchemy.orm import Session

from app.db.repositories.artifacts import ArtifactRepository
from app.db.repositories.audit import AuditRepository
from app.db.repositories.idempotency import IdempotencyRepository
from app.db.repositories.job_records import JobRecordRepository
from app.db.repositories.jobs import JobRepository
from app.db.repositories.keys import KeyRepository
from app.db.repositories.models import ModelRepository
from app.db.repositories.projects import ProjectRepository
from app.db.repositories.secrets import SecretRepository
from app.db.session import Database
from app.security.scopes import Principal


@dataclass(frozen=True)
class UnitOfWork:
    """What a service works with. Repositories see the principal's project only."""

    database: Database
    session: Session
    principal: Principal
    request_id: str | None = None

    @cached_property
    def now(self) -> datetime:
        """The time all rows of this transaction are stamped with."""
        return self.database.now(self.session)

    @property
    def time(self) -> ColumnElement[datetime]:
        """The present time as part of a statement, for one that compares with it and no more."""
        return self.database.time

    @cached_property
    def jobs(self) -> JobRepository:
        """Jobs of the project."""
        return JobRepository(self.session, self.principal.project_id)

    @cached_property
    def records(self) -> JobRecordRepository:
        """Attempts, events, logs, metrics and evaluations of the project's jobs."""
        return JobRecordRepository(self.session, self.principal.project_id)

    @cached_property
    def artifacts(self) -> ArtifactRepository:
        """Artifacts and checkpoints of the project's jobs."""
        return ArtifactRepository(self.session, self.principal.project_id)

    @cached_property
    def models(self) -> ModelRepository:
        """Model versions of the project."""
        return ModelRepository(self.session, self.principal.project_id)

    @cached_property
    def keys(self) -> KeyRepository:
        """API keys of the project."""
        return KeyRepository(self.session, self.principal.project_id)

    @cached_property
    def audit(self) -> AuditRepository:
        """Audit log of the project; entries are written by `app.services.audit.record`."""
        return AuditRepository(self.session, self.principal.project_id)

    @cached_property
    def secrets(self) -> SecretRepository:
        """Encrypted secrets of the project."""
        return SecretRepository(self.session, self.principal.project_id)

    @cached_property
    def idempotency(self) -> IdempotencyRepository:
        """Stored answers of the project."""
        return IdempotencyRepository(self.session, self.principal.project_id)

    @cached_property
    def project(self) -> ProjectRepository:
        """The project itself, its quotas and their use."""
        return ProjectRepository(self.session, self.principal.project_id)


def unit_of_work(
    database: Database,
    principal: Principal,
    *,
    write: bool = False,
    request_id: str | None = None,
) -> AbstractContextManager[UnitOfWork]:
    """Open one transaction that is committed at the end when `write`, else a session that reads."""
    return _unit_of_work(database, principal, write=write, request_id=request_id)


@contextmanager
def _unit_of_work(
    database: Database, principal: Principal, *, write: bool, request_id: str | None
) -> Iterator[UnitOfWork]:
    with database.write() if write else database.read() as session:
        yield UnitOfWork(database, session, principal, request_id)
