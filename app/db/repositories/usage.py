"""What a project has used, counted in the database."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import InstrumentedAttribute, Session

from app.db.repositories.projects import CPU_DEVICE
from app.db.tables import Artifact, Job, JobAttempt
from app.domain.states import TERMINAL

SECONDS_A_DAY = 86_400


class UsageGroup(StrEnum):
    """By what use is told apart."""

    DAY = "day"
    METHOD = "method"
    KEY = "key"


@dataclass(frozen=True, slots=True)
class UsagePeriod:
    """From when on, and before when."""

    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class AttemptUse:
    """How many attempts ended, and how long they took in all."""

    attempts: int
    wall_s: float
    accelerator_s: float


class UsageRepository:
    """Use of one project. Jobs and attempts count when they end."""

    def __init__(self, session: Session, project_id: UUID) -> None:
        self._session = session
        self._project_id = project_id
        self._is_sqlite = session.get_bind().dialect.name == "sqlite"

    def jobs_by_outcome(
        self, group: UsageGroup, period: UsagePeriod
    ) -> Sequence[tuple[Any, str, int]]:
        """Count the jobs that ended, deleted ones too, by group and status."""
        key = self._key(group, Job.finished_at)
        statement = (
            sa.select(key, Job.status, sa.func.count())
            .where(Job.project_id == self._project_id, *_ended_in(period))
            .group_by(key, Job.status)
        )
        return [(found, status, n) for found, status, n in self._session.execute(statement)]

    def attempts(self, group: UsageGroup, period: UsagePeriod) -> dict[Any, AttemptUse]:
        """Count the attempts that ended, and sum their time."""
        key = self._key(group, JobAttempt.ended_at)
        took_s = self._seconds(JobAttempt.started_at, JobAttempt.ended_at)
        accelerated_s = sa.case(
            (JobAttempt.device != CPU_DEVICE, took_s), else_=sa.literal(0.0, sa.Float)
        )
        statement = (
            sa.select(key, sa.func.count(), sa.func.sum(took_s), sa.func.sum(accelerated_s))
            .join(Job, Job.id == JobAttempt.job_id)
            .where(
                JobAttempt.project_id == self._project_id,
                JobAttempt.ended_at >= period.since,
                JobAttempt.ended_at < period.until,
            )
            .group_by(key)
        )
        rows = self._session.execute(statement)
        return {
            found: AttemptUse(count, float(wall_s), float(on_accelerator_s))
            for found, count, wall_s, on_accelerator_s in rows
        }

    def stored_bytes(self, group: UsageGroup, period: UsagePeriod) -> dict[Any, int]:
        """Sum the artifacts of the jobs that ended, expired ones too."""
        key = self._key(group, Job.finished_at)
        statement = (
            sa.select(key, sa.func.sum(Artifact.size_bytes))
            .join(Artifact, Artifact.job_id == Job.id)
            .where(Job.project_id == self._project_id, *_ended_in(period))
            .group_by(key)
        )
        return {found: int(size) for found, size in self._session.execute(statement)}

    def _key(
        self, group: UsageGroup, ended_at: InstrumentedAttribute[Any]
    ) -> sa.ColumnElement[Any]:
        if group is UsageGroup.METHOD:
            return sa.type_coerce(Job.method, sa.String)
        if group is UsageGroup.KEY:
            return sa.type_coerce(Job.created_by_key_id, sa.Uuid)
        if self._is_sqlite:  # moments are ISO text in UTC there
            return sa.func.substr(ended_at, 1, 10, type_=sa.String)
        # Literals, not parameters: the same expression has to stand in GROUP BY.
        moment = sa.func.timezone(sa.literal_column("'UTC'"), ended_at)
        return sa.func.to_char(moment, sa.literal_column("'YYYY-MM-DD'"), type_=sa.String)

    def _seconds(
        self, start: InstrumentedAttribute[Any], end: InstrumentedAttribute[Any]
    ) -> sa.ColumnElement[float]:
        if self._is_sqlite:
            days = sa.func.julianday(end) - sa.func.julianday(start)
            return sa.type_coerce(days * SECONDS_A_DAY, sa.Float)
        return sa.type_coerce(sa.extract("epoch", end - start), sa.Float)


def _ended_in(period: UsagePeriod) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        Job.status.in_(TERMINAL),
        Job.finished_at >= period.since,
        Job.finished_at < period.until,
    )
