"""Jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session, defer

from app.db.tables import Job
from app.domain.states import JobStatus


@dataclass(frozen=True, slots=True)
class JobFilters:
    """Which jobs to list; an empty filter lets everything through."""

    status: tuple[str, ...] = ()
    kind: tuple[str, ...] = ()
    method: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    model_version_id: UUID | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    name_prefix: str | None = field(default=None)

    def conditions(self) -> list[sa.ColumnElement[bool]]:
        """Write the filters as SQL conditions."""
        found: list[sa.ColumnElement[bool]] = [
            column.in_(wanted)
            for column, wanted in (
                (Job.status, self.status),
                (Job.kind, self.kind),
                (Job.method, self.method),
            )
            if wanted
        ]
        found += [Job.labels[key].as_string() == value for key, value in self.labels]
        if self.model_version_id is not None:
            found.append(Job.model_version_id == self.model_version_id)
        if self.created_after is not None:
            found.append(Job.created_at >= self.created_after)
        if self.created_before is not None:
            found.append(Job.created_at < self.created_before)
        if self.name_prefix:
            # LIKE ignores case on SQLite only; this compares the same way on both databases.
            head = sa.func.substr(Job.name, 1, len(self.name_prefix))
            found.append(head == self.name_prefix)
        return found


@dataclass(frozen=True, slots=True)
class ListedJob:
    """A job of a list with the model it works on.

    The rest of its resolved spec stays in the database: with all pairs of a method it is 19 KB,
    and took most of the time of a page.
    """

    job: Job
    model: dict[str, Any]

    @property
    def id(self) -> UUID:
        """The id of the job, by which pages are ordered."""
        return self.job.id


class JobRepository:
    """Jobs of one project that were not deleted."""

    def __init__(self, session: Session, project_id: UUID) -> None:
        self._session = session
        self._project_id = project_id

    def get(self, job_id: UUID) -> Job | None:
        """Return a job."""
        statement = self._live().where(Job.id == job_id)
        return self._session.execute(statement).scalar_one_or_none()

    def lock(self, job_id: UUID) -> Job | None:
        """Return a job with its row locked until the end of the transaction."""
        statement = self._live().where(Job.id == job_id).with_for_update(key_share=True)
        return self._session.execute(statement).scalar_one_or_none()

    def refresh(self, job: Job) -> Job:
        """Read a job again after statements that changed its row."""
        self._session.refresh(job)
        return job

    def page(self, filters: JobFilters, *, before: UUID | None, limit: int) -> Sequence[ListedJob]:
        """List jobs, newest first, starting below the id `before`."""
        wanted = self._live().with_only_columns(Job.id).where(*filters.conditions())
        if before is not None:
            wanted = wanted.where(Job.id < before)
        # Chosen first: to sort many that match, PostgreSQL would read the model of each.
        chosen = wanted.order_by(Job.id.desc()).limit(limit).subquery()
        rows = self._session.execute(
            self._live()
            .options(defer(Job.resolved_spec, raiseload=True))
            .add_columns(Job.resolved_spec["model"])
            .join(chosen, chosen.c.id == Job.id)
            .order_by(Job.id.desc())
        )
        return [ListedJob(job, model) for job, model in rows]

    def count_by_status_and_class(self) -> list[tuple[str, str, int]]:
        """Count jobs by status and device class."""
        statement = (
            sa.select(Job.status, Job.device_class, sa.func.count())
            .where(Job.project_id == self._project_id, Job.deleted_at.is_(None))
            .group_by(Job.status, Job.device_class)
        )
        return [(status, name, count) for status, name, count in self._session.execute(statement)]

    def position(self, job: Job) -> int:
        """How many of the project's queued jobs of the same class run before this one, plus 1."""
        values = {
            "project_id": self._project_id,
            "device_class": job.device_class,
            "priority": job.priority,
            "queued_at": job.queued_at,
            "job": job.id,
        }
        return int(self._session.execute(_COUNT_AHEAD, values).scalar_one()) + 1

    def change(self, job: Job, values: Mapping[str, Any], *, now: datetime) -> Job:
        """Write visible columns other than the status, and raise the version."""
        self._session.execute(
            sa.update(Job)
            .where(Job.project_id == self._project_id, Job.id == job.id)
            .values(**values, version=Job.version + 1, updated_at=now)
        )
        return self.refresh(job)

    def _live(self) -> sa.Select[Job]:
        return sa.select(Job).where(Job.project_id == self._project_id, Job.deleted_at.is_(None))


def _count_ahead() -> sa.Select[int]:
    priority: sa.BindParameter[int] = sa.bindparam("priority")
    queued_at: sa.BindParameter[datetime] = sa.bindparam("queued_at")
    ahead = sa.or_(
        Job.priority > priority,
        sa.and_(Job.priority == priority, Job.queued_at < queued_at),
        sa.and_(Job.priority == priority, Job.queued_at == queued_at, Job.id < sa.bindparam("job")),
    )
    return (
        sa.select(sa.func.count())
        .select_from(Job)
        .where(
            Job.project_id == sa.bindparam("project_id"),
            Job.status == JobStatus.QUEUED,
            Job.device_class == sa.bindparam("device_class"),
            ahead,
        )
    )


# Built once: to build it takes five times as long as to execute it.
_COUNT_AHEAD = _count_ahead()
