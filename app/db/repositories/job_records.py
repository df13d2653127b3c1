"""What a job leaves behind as rows: attempts, events, log chunks, metrics, evaluations."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.tables import (
    EvaluationResult,
    Job,
    JobAttempt,
    JobEvent,
    JobLogChunk,
    MetricPoint,
)


class JobRecordRepository:
    """Records of one project's jobs."""

    def __init__(self, session: Session, project_id: UUID) -> None:
        self._session = session
        self._project_id = project_id

    def attempts(self, job_id: UUID) -> Sequence[JobAttempt]:
        """List the attempts of a job, first to last."""
        statement = (
            sa.select(JobAttempt)
            .where(JobAttempt.project_id == self._project_id, JobAttempt.job_id == job_id)
            .order_by(JobAttempt.number)
        )
        return self._session.execute(statement).scalars().all()

    def events(self, job_id: UUID, *, after: int, limit: int) -> Sequence[JobEvent]:
        """List events with a number above `after`, in order."""
        statement = (
            sa.select(JobEvent)
            .join(Job, Job.id == JobEvent.job_id)
            .where(
                Job.project_id == self._project_id,
                JobEvent.job_id == job_id,
                JobEvent.seq > after,
            )
            .order_by(JobEvent.seq)
            .limit(limit)
        )
        return self._session.execute(statement).scalars().all()

    def log_chunks(
        self, job_id: UUID, *, attempt: int | None, stream: str | None
    ) -> Sequence[JobLogChunk]:
        """List log chunks in the order they were written."""
        statement = (
            sa.select(JobLogChunk)
            .join(Job, Job.id == JobLogChunk.job_id)
            .where(Job.project_id == self._project_id, JobLogChunk.job_id == job_id)
            .order_by(JobLogChunk.attempt, JobLogChunk.first_at, JobLogChunk.stream, JobLogChunk.n)
        )
        if attempt is not None:
            statement = statement.where(JobLogChunk.attempt == attempt)
        if stream is not None:
            statement = statement.where(JobLogChunk.stream == stream)
        return self._session.execute(statement).scalars().all()

    def metric_names(self, job_id: UUID) -> list[dict[str, Any]]:
        """List the metric names of a job with the number of points and the last step."""
        statement = (
            sa.select(MetricPoint.name, sa.func.count(), sa.func.max(MetricPoint.step))
            .join(Job, Job.id == MetricPoint.job_id)
            .where(Job.project_id == self._project_id, MetricPoint.job_id == job_id)
            .group_by(MetricPoint.name)
            .order_by(MetricPoint.name)
        )
        return [
            {"name": name, "points": points, "last_step": step}
            for name, points, step in self._session.execute(statement)
        ]

    def metric_points(
        self, job_id: UUID, *, name: str | None, after_step: int | None
    ) -> Sequence[MetricPoint]:
        """List points by name, attempt and step."""
        statement = (
            sa.select(MetricPoint)
            .join(Job, Job.id == MetricPoint.job_id)
            .where(Job.project_id == self._project_id, MetricPoint.job_id == job_id)
            .order_by(MetricPoint.name, MetricPoint.attempt, MetricPoint.step)
        )
        if name is not None:
            statement = statement.where(MetricPoint.name == name)
        if after_step is not None:
            statement = statement.where(MetricPoint.step > after_step)
        return self._session.execute(statement).scalars().all()

    def evaluations(self, job_id: UUID) -> Sequence[EvaluationResult]:
        """List the evaluation rows of a job."""
        statement = (
            sa.select(EvaluationResult)
            .where(
                EvaluationResult.project_id == self._project_id,
                EvaluationResult.job_id == job_id,
            )
            .order_by(
                EvaluationResult.benchmark,
                EvaluationResult.metric,
                EvaluationResult.group_key,
                EvaluationResult.seed,
                EvaluationResult.stage.desc(),  # before, then after
            )
        )
        return self._session.execute(statement).scalars().all()
