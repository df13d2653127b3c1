"""Read what a job leaves behind: events, attempts, metrics, evaluations."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from uuid import UUID

from app.db.tables import EvaluationResult, JobAttempt, JobEvent, MetricPoint
from app.db.uow import UnitOfWork
from app.domain.states import TERMINAL, JobStatus
from app.domain.thinning import thin
from app.services.jobs import get_job


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events in order, and whether more can come after the last one."""

    events: Sequence[JobEvent]
    status: JobStatus

    @property
    def finished(self) -> bool:
        """Tell whether the job is finished."""
        return self.status in TERMINAL


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one metric in one attempt."""

    name: str
    attempt: int
    points: Sequence[MetricPoint]


def read_events(u: UnitOfWork, job_id: UUID, *, after: int, limit: int) -> EventBatch:
    """Read events with a number above `after`."""
    # The job first: an event that comes in between then belongs to the next batch.
    job = get_job(u, job_id)
    events = u.records.events(job_id, after=after, limit=limit)
    return EventBatch(events, JobStatus(job.status))


def list_attempts(u: UnitOfWork, job_id: UUID) -> Sequence[JobAttempt]:
    """List the attempts of a job."""
    return u.records.attempts(get_job(u, job_id).id)


def list_metric_names(u: UnitOfWork, job_id: UUID) -> list[dict[str, Any]]:
    """List the metrics that have points."""
    return u.records.metric_names(get_job(u, job_id).id)


def read_metrics(
    u: UnitOfWork, job_id: UUID, *, name: str | None, after_step: int | None, max_points: int
) -> list[Series]:
    """Read curves, each thinned out to at most `max_points` points."""
    get_job(u, job_id)
    points = u.records.metric_points(job_id, name=name, after_step=after_step)
    return [
        Series(key[0], key[1], thin(list(group), max_points, value=lambda point: point.value))
        for key, group in groupby(points, key=lambda point: (point.name, point.attempt))
    ]


def list_evaluations(u: UnitOfWork, job_id: UUID) -> Sequence[EvaluationResult]:
    """List the evaluation rows of a job."""
    return u.records.evaluations(get_job(u, job_id).id)
