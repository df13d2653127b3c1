"""The caller's project, its quotas and what is used of them."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.tables import Blob, Job, JobAttempt, Project
from app.domain.states import JobStatus

WAITING = (JobStatus.PENDING, JobStatus.QUEUED)
OCCUPYING = (JobStatus.RUNNING, JobStatus.CANCELLING)
CPU_DEVICE = "cpu"
"""Every other device that an attempt ran on is an accelerator, and its time counts."""


class ProjectRepository:
    """One project."""

    def __init__(self, session: Session, project_id: UUID) -> None:
        self._session = session
        self._project_id = project_id

    def get(self) -> Project:
        """Return the project."""
        return self._session.get_one(Project, self._project_id)

    def find(self) -> Project | None:
        """Return the project, None where an id given by a client names none."""
        return self._session.get(Project, self._project_id)

    def lock(self) -> Project:
        """Return the project with its row locked, so that its quotas are exact."""
        # NO KEY UPDATE: rows of attempts that refer to the project need not wait.
        statement = (
            sa.select(Project)
            .where(Project.id == self._project_id)
            .with_for_update(key_share=True)
            .execution_options(populate_existing=True)
        )
        return self._session.execute(statement).scalar_one()

    def change(self, values: Mapping[str, Any], *, now: datetime) -> Project:
        """Write columns and raise the version; the row is locked by the caller."""
        self._session.execute(
            sa.update(Project)
            .where(Project.id == self._project_id)
            .values(**values, version=Project.version + 1, updated_at=now)
        )
        project = self.get()
        self._session.refresh(project)
        return project

    def count_waiting(self) -> int:
        """How many jobs of the project wait to run."""
        return self._count(WAITING)

    def count_line(self, device_class: str, priority: int) -> tuple[int, int]:
        """How many jobs of the project wait to run, and how many of them before a new one."""
        values = {
            "project_id": self._project_id,
            "device_class": device_class,
            "priority": priority,
        }
        waiting, before = self._session.execute(_COUNT_LINE, values).one()
        return int(waiting), int(before)

    def count_running(self) -> int:
        """How many jobs of the project hold a worker."""
        return self._count(OCCUPYING)

    def stored_bytes(self) -> int:
        """Sum the blobs that the project holds, each once, however many artifacts share it.

        Blobs that are being deleted are left out: whoever stores their bytes anew counts them.
        """
        statement = sa.select(sa.func.sum(Blob.size_bytes)).where(
            Blob.project_id == self._project_id, Blob.state == "stored"
        )
        return int(self._session.execute(statement).scalar_one() or 0)

    def held_digests(self, digests: Collection[str]) -> set[str]:
        """Tell which bytes, named by their SHA-256, the project holds already."""
        statement = sa.select(Blob.sha256).where(
            Blob.project_id == self._project_id,
            Blob.sha256.in_(digests),
            Blob.state == "stored",
        )
        return set(self._session.execute(statement).scalars())

    def accelerator_seconds(self, *, since: datetime, now: datetime) -> float:
        """Sum the time of attempts on accelerators from `since` on, running ones included."""
        of_project = sa.select(JobAttempt.started_at, JobAttempt.ended_at).where(
            JobAttempt.project_id == self._project_id, JobAttempt.device != CPU_DEVICE
        )
        # Two ranges of one index: with OR, SQLite would read all attempts of the project.
        rows = self._session.execute(
            sa.union_all(
                of_project.where(JobAttempt.ended_at.is_(None)),
                of_project.where(JobAttempt.ended_at > since),
            )
        )
        return sum(
            max(0.0, ((ended or now) - max(started, since)).total_seconds())
            for started, ended in rows
        )

    def _count(self, statuses: tuple[JobStatus, ...]) -> int:
        statement = (
            sa.select(sa.func.count())
            .select_from(Job)
            .where(Job.project_id == self._project_id, Job.status.in_(statuses))
        )
        return self._session.execute(statement).scalar_one()


def count_waiting_of_all(session: Session) -> int:
    """How many jobs of all projects wait to run: the service's own limit."""
    return int(session.execute(_COUNT_WAITING_OF_ALL).scalar_one())


def _count_line() -> sa.Select[int, int]:
    before = sa.and_(
        Job.status == JobStatus.QUEUED,
        Job.device_class == sa.bindparam("device_class"),
        Job.priority >= sa.bindparam("priority", type_=sa.Integer),
    )
    return sa.select(sa.func.count(), sa.func.count().filter(before)).where(
        Job.project_id == sa.bindparam("project_id"), Job.status.in_(WAITING)
    )


# Built once: every job that is created asks them.
_COUNT_WAITING_OF_ALL = sa.select(sa.func.count()).select_from(Job).where(Job.status.in_(WAITING))
_COUNT_LINE = _count_line()


def find_project(session: Session, name: str) -> Project | None:
    """Find a project by name. For operators: requests know their project by key."""
    return session.execute(sa.select(Project).where(Project.name == name)).scalar_one_or_none()


def page_of_projects(session: Session, *, before: UUID | None, limit: int) -> Sequence[Project]:
    """List projects, newest first. For operators."""
    statement = sa.select(Project).order_by(Project.id.desc()).limit(limit)
    if before is not None:
        statement = statement.where(Project.id < before)
    return session.execute(statement).scalars().all()


def add_project(
    session: Session,
    project_id: UUID,
    name: str,
    *,
    now: datetime,
    limits: Mapping[str, Any] | None = None,
) -> Project:
    """Insert a project, with default quotas where `limits` does not name them."""
    project = Project(id=project_id, name=name, created_at=now, updated_at=now, **(limits or {}))
    session.add(project)
    session.flush()
    session.refresh(project)
    return project
