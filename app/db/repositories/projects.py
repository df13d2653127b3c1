"""The caller's project, its quotas and what is used of them."""

from datetime import datetime
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.tables import Job, Project
from app.domain.states import JobStatus

WAITING = (JobStatus.PENDING, JobStatus.QUEUED)
OCCUPYING = (JobStatus.RUNNING, JobStatus.CANCELLING)


class ProjectRepository:
    """One project."""

    def __init__(self, session: Session, project_id: UUID) -> None:
        self._session = session
        self._project_id = project_id

    def get(self) -> Project:
        """Return the project."""
        return self._session.get_one(Project, self._project_id)

    def lock(self) -> Project:
        """Return the project with its row locked, so that its quotas are exact."""
        # NO KEY UPDATE: rows of attempts that refer to the project need not wait.
        statement = (
            sa.select(Project).where(Project.id == self._project_id).with_for_update(key_share=True)
        )
        return self._session.execute(statement).scalar_one()

    def count_waiting(self) -> int:
        """How many jobs of the project wait to run."""
        return self._count(WAITING)

    def count_running(self) -> int:
        """How many jobs of the project hold a worker."""
        return self._count(OCCUPYING)

    def _count(self, statuses: tuple[JobStatus, ...]) -> int:
        statement = (
            sa.select(sa.func.count())
            .select_from(Job)
            .where(Job.project_id == self._project_id, Job.status.in_(statuses))
        )
        return self._session.execute(statement).scalar_one()


def count_waiting_of_all(session: Session) -> int:
    """How many jobs of all projects wait to run: the service's own limit."""
    statement = sa.select(sa.func.count()).select_from(Job).where(Job.status.in_(WAITING))
    return session.execute(statement).scalar_one()


def find_project(session: Session, name: str) -> Project | None:
    """Find a project by name. For start-up only: requests know their project by key."""
    return session.execute(sa.select(Project).where(Project.name == name)).scalar_one_or_none()


def add_project(session: Session, project_id: UUID, name: str, *, now: datetime) -> Project:
    """Insert a project with default quotas."""
    project = Project(id=project_id, name=name, created_at=now, updated_at=now)
    session.add(project)
    session.flush()
    return project
