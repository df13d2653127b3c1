"""Rows of jobs as response bodies."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from app.db.repositories.jobs import ListedJob
from app.db.tables import Artifact, Job
from app.db.uow import UnitOfWork
from app.domain.ids import IdPrefix, format_id
from app.domain.states import JobStatus
from app.schemas.jobs import (
    ArtifactSummary,
    JobBody,
    JobCounts,
    JobErrorBody,
    JobLinks,
    JobProgress,
    JobQueue,
    JobResultBody,
    JobWorker,
)


def job_body(
    u: UnitOfWork, job: Job, *, position: int | None = None, expand_artifacts: bool = False
) -> JobBody:
    """Show one job, with its place in the queue, which is counted where it is not given."""
    spec = job.resolved_spec
    body = _bodies(u, [_Shown(job, spec["model"], spec["config"])])[0]
    changes: dict[str, Any] = {}
    if job.status == JobStatus.QUEUED:
        place = u.jobs.position(job) if position is None else position
        changes["queue"] = JobQueue(**{"class": job.device_class}, position=place)
    if expand_artifacts:
        changes["artifacts"] = [_summary(row) for row in u.artifacts.of_job(job.id)]
    return body.model_copy(update=changes)


def listed_bodies(u: UnitOfWork, rows: Sequence[ListedJob]) -> list[JobBody]:
    """Show the jobs of a list; their config is as it was sent, not as it was resolved."""
    return _bodies(u, [_Shown(row.job, row.model, row.job.spec.get("config", {})) for row in rows])


@dataclass(frozen=True, slots=True)
class _Shown:
    """A job with those parts of its spec that are shown."""

    job: Job
    model: Mapping[str, Any]
    config: Mapping[str, Any]


def _bodies(u: UnitOfWork, jobs: Sequence[_Shown]) -> list[JobBody]:
    """Show several jobs with two queries for all of them together."""
    finished = [shown.job.id for shown in jobs if shown.job.result is not None]
    versions = u.models.versions_of_jobs(finished) if finished else {}
    artifacts: dict[UUID, list[Artifact]] = defaultdict(list)
    for artifact in u.artifacts.of_jobs(finished) if finished else ():
        artifacts[artifact.job_id].append(artifact)
    return [_body(shown, versions.get(shown.job.id), artifacts[shown.job.id]) for shown in jobs]


def job_counts(rows: Sequence[tuple[str, str, int]]) -> JobCounts:
    """Show counts with a zero for every status."""
    by_status: dict[Any, int] = {status.value: 0 for status in JobStatus}
    by_class: dict[str, dict[Any, int]] = defaultdict(dict)
    for status, device_class, count in rows:
        by_status[status] += count
        by_class[device_class][status] = count
    return JobCounts(by_status=by_status, by_device_class=by_class)


def finite(value: Any) -> Any:
    """Replace numbers that JSON cannot carry by null, at any depth."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def nonfinite_name(value: float) -> str | None:
    """Name what replaces a number that JSON cannot carry."""
    if math.isfinite(value):
        return None
    if math.isnan(value):
        return "nan"
    return "inf" if value > 0 else "-inf"


def _body(shown: _Shown, version_id: UUID | None, artifacts: Sequence[Artifact]) -> JobBody:
    job = shown.job
    job_id = format_id(IdPrefix.JOB, job.id)
    return JobBody(
        id=job_id,
        kind=job.kind,
        name=job.name,
        status=job.status,
        phase=job.phase,
        progress=JobProgress(**finite(_known(JobProgress, job.progress))) if job.progress else None,
        queue=JobQueue(**{"class": job.device_class}, position=None),
        model={key: item for key, item in shown.model.items() if key != "files"},
        method=job.method,
        method_version=job.method_version,
        config=dict(shown.config),
        spec_hash=job.spec_hash,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        priority=job.priority,
        seed=job.seed,
        stop_requested=job.stop_requested,
        worker=_worker(job),
        error=JobErrorBody(**_known(JobErrorBody, job.error)) if job.error else None,
        result=_result(job, version_id, artifacts),
        estimate=job.estimate,
        created_at=job.created_at,
        queued_at=job.queued_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        usage=finite(job.usage),
        labels=job.labels,
        created_by_key=(
            format_id(IdPrefix.KEY, job.created_by_key_id) if job.created_by_key_id else None
        ),
        links=_links(job_id),
    )


def _known(model: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in model.model_fields if name in values}


def _worker(job: Job) -> JobWorker | None:
    if job.worker_id is None:
        return None
    return JobWorker(id=format_id(IdPrefix.WORKER, job.worker_id), host_class=job.device_class)


def _result(
    job: Job, version_id: UUID | None, artifacts: Sequence[Artifact]
) -> JobResultBody | None:
    if job.result is None:
        return None
    result = finite(job.result)
    return JobResultBody(
        model_version_id=format_id(IdPrefix.MODEL_VERSION, version_id) if version_id else None,
        metrics=result.get("metrics", {}),
        summary=result.get("summary", []),
        artifacts=[format_id(IdPrefix.ARTIFACT, row.id) for row in artifacts],
        warnings=result.get("warnings", []),
    )


def _summary(row: Artifact) -> ArtifactSummary:
    return ArtifactSummary(
        id=format_id(IdPrefix.ARTIFACT, row.id),
        name=row.name,
        type=row.type,
        size_bytes=row.size_bytes,
        sha256=row.sha256,
    )


def _links(shown: str) -> JobLinks:
    base = f"/v1/jobs/{shown}"
    return JobLinks(
        **{"self": base},
        events=f"{base}/events",
        logs=f"{base}/logs",
        metrics=f"{base}/metrics",
        artifacts=f"{base}/artifacts",
        report=f"{base}/report",
    )
