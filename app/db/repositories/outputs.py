"""Write what an attempt produces. Every caller holds the job's row under its fence first."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.repositories.blobs import StoredBlob
from app.db.repositories.upsert import insert_into
from app.db.tables import (
    Artifact,
    EvaluationResult,
    Job,
    JobCheckpoint,
    JobLogChunk,
    MetricPoint,
    Model,
    ModelFile,
    ModelVersion,
    Project,
)
from app.domain.canonical import canonical_sha256
from app.domain.clock import unix_ms
from app.domain.ids import new_id
from app.domain.models import FileFact

EVALUATION_LEVEL = 0.95
# Seven parameters each; SQLite takes 32,766 a statement.
METRICS_PER_STATEMENT = 500


@dataclass(frozen=True, slots=True)
class NewArtifact:
    """One artifact to insert."""

    name: str
    type: str
    media_type: str
    blob: StoredBlob


@dataclass(frozen=True, slots=True)
class NewEvaluation:
    """One evaluation row to insert."""

    stage: str
    benchmark: str
    metric: str
    group_key: str
    value: float
    n: int
    unit: str
    ideal: float | None
    ci_low: float | None
    ci_high: float | None


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A model version to insert, with the files that make it up."""

    model_type: str
    architecture: str | None
    params: int
    dtype: str | None
    files: Sequence[FileFact]
    base_source: Mapping[str, Any]
    register_as: str | None


@dataclass(frozen=True, slots=True)
class NewPoint:
    """A checkpoint to insert; `step` is None for a finished phase."""

    phase: str
    step: int | None
    state: StoredBlob
    arrays: StoredBlob | None
    engine_version: str


@dataclass(frozen=True, slots=True)
class MetricValue:
    """One point of a training curve."""

    name: str
    step: int
    value: float
    at: datetime


def insert_artifacts(
    session: Session, job: Job, artifacts: Sequence[NewArtifact], *, kept: bool, now: datetime
) -> None:
    """Insert the artifacts of a job whose blobs are confirmed; `kept` ones never expire."""
    days = session.get_one(Project, job.project_id).retention_days
    expires_at = None if kept else now + timedelta(days=days)
    session.add_all(
        Artifact(
            id=new_id(unix_ms(now)),
            created_at=now,
            updated_at=now,
            project_id=job.project_id,
            job_id=job.id,
            fence=job.fence,
            name=artifact.name,
            type=artifact.type,
            media_type=artifact.media_type,
            size_bytes=artifact.blob.size_bytes,
            sha256=artifact.blob.sha256,
            expires_at=expires_at,
        )
        for artifact in artifacts
    )
    session.flush()


def replace_evaluations(
    session: Session,
    job: Job,
    rows: Sequence[NewEvaluation],
    *,
    version: str,
    now: datetime,
) -> None:
    """Write the rows of the stages that `rows` speak of, in place of what was there."""
    stages = {row.stage for row in rows}
    session.execute(
        sa.delete(EvaluationResult).where(
            EvaluationResult.project_id == job.project_id,
            EvaluationResult.job_id == job.id,
            EvaluationResult.stage.in_(stages),
        )
    )
    session.add_all(_evaluation(job, row, version, now) for row in rows)
    session.flush()


def insert_version(session: Session, job: Job, version: NewVersion, *, now: datetime) -> UUID:
    """Insert the model version a job made, under the next number of its model if it has one."""
    model_id = number = None
    if version.register_as is not None:
        model_id = _model_named(session, job.project_id, version.register_as, now)
        number = _next_number(session, model_id)
    version_id = new_id(unix_ms(now))
    listed = [[file.path, file.sha256] for file in sorted(version.files, key=lambda f: f.path)]
    session.add(
        ModelVersion(
            id=version_id,
            created_at=now,
            project_id=job.project_id,
            model_id=model_id,
            number=number,
            source={"type": "job", "job_id": str(job.id)},
            model_type=version.model_type,
            architecture=version.architecture,
            params=version.params,
            dtype=version.dtype,
            size_bytes=sum(file.size_bytes for file in version.files),
            content_sha256=canonical_sha256(listed),
            base_source=dict(version.base_source),
            created_by_job_id=job.id,
        )
    )
    session.flush()
    session.add_all(
        ModelFile(
            model_version_id=version_id,
            path=file.path,
            blob_sha256=file.sha256,
            size_bytes=file.size_bytes,
        )
        for file in version.files
    )
    session.flush()
    return version_id


def insert_point(session: Session, job: Job, point: NewPoint, *, now: datetime) -> None:
    """Insert a checkpoint whose blobs are confirmed."""
    arrays = point.arrays
    session.add(
        JobCheckpoint(
            id=new_id(unix_ms(now)),
            created_at=now,
            project_id=job.project_id,
            job_id=job.id,
            fence=job.fence,
            phase=point.phase,
            step=point.step,
            size_bytes=point.state.size_bytes + (arrays.size_bytes if arrays else 0),
            state_sha256=point.state.sha256,
            arrays_sha256=arrays.sha256 if arrays else None,
            spec_hash=job.spec_hash,
            engine_version=point.engine_version,
        )
    )
    session.flush()


def live_points(
    session: Session, project_id: UUID, job_id: UUID, *, phase: str | None = None
) -> list[JobCheckpoint]:
    """List the job's checkpoints that were not deleted, newest first."""
    statement = sa.select(JobCheckpoint).where(
        JobCheckpoint.project_id == project_id,
        JobCheckpoint.job_id == job_id,
        JobCheckpoint.deleted_at.is_(None),
    )
    if phase is not None:
        statement = statement.where(JobCheckpoint.phase == phase)
    newest_first = statement.order_by(JobCheckpoint.fence.desc(), JobCheckpoint.id.desc())
    return list(session.execute(newest_first).scalars())


def drop_old_steps(session: Session, job: Job, *, keep: int, now: datetime) -> None:
    """Mark all but the newest `keep` in-phase checkpoints as deleted."""
    points = live_points(session, job.project_id, job.id)
    steps = [point for point in points if point.step is not None]
    for point in steps[keep:]:
        point.deleted_at = now


def drop_points(session: Session, job: Job, *, keep_steps: int, now: datetime) -> None:
    """Mark the checkpoints of a finished job as deleted, but for the wanted in-phase ones."""
    kept = 0
    for point in live_points(session, job.project_id, job.id):
        if point.step is not None and kept < keep_steps:
            kept += 1
        else:
            point.deleted_at = now


def insert_log_chunk(session: Session, chunk: JobLogChunk) -> None:
    """Insert the row of a chunk whose bytes are stored."""
    session.add(chunk)
    session.flush()


def write_metrics(
    session: Session, job_id: UUID, attempt: int, points: Sequence[MetricValue]
) -> None:
    """Insert points; one of the same name and step takes the place of the earlier one."""
    latest = {(point.name, point.step): point for point in points}
    rows = [_metric_row(job_id, attempt, point) for point in latest.values()]
    for first in range(0, len(rows), METRICS_PER_STATEMENT):
        chunk = rows[first : first + METRICS_PER_STATEMENT]
        statement = insert_into(session, MetricPoint).values(chunk)
        new = statement.excluded
        session.execute(
            statement.on_conflict_do_update(
                index_elements=["job_id", "name", "attempt", "step"],
                set_={"value": new.value, "nonfinite": new.nonfinite, "at": new.at},
            )
        )


def _metric_row(job_id: UUID, attempt: int, point: MetricValue) -> dict[str, Any]:
    finite = math.isfinite(point.value)
    return {
        "job_id": job_id,
        "attempt": attempt,
        "name": point.name,
        "step": point.step,
        "value": point.value if finite else None,
        "nonfinite": None if finite else _spell(point.value),
        "at": point.at,
    }


def _evaluation(job: Job, row: NewEvaluation, version: str, now: datetime) -> EvaluationResult:
    finite = math.isfinite(row.value)
    return EvaluationResult(
        id=new_id(unix_ms(now)),
        created_at=now,
        project_id=job.project_id,
        job_id=job.id,
        fence=job.fence,
        stage=row.stage,
        benchmark=row.benchmark,
        benchmark_version=version,
        metric=row.metric,
        group_key=row.group_key,
        seed=job.seed,
        value=row.value if finite else None,
        nonfinite=None if finite else _spell(row.value),
        ci_low=row.ci_low,
        ci_high=row.ci_high,
        ci_level=None if row.ci_low is None else EVALUATION_LEVEL,
        n=row.n,
        unit=row.unit,
        ideal=row.ideal,
    )


def _model_named(session: Session, project_id: UUID, name: str, now: datetime) -> UUID:
    """Find or make the model, and lock its row: two jobs must not take the same number."""
    statement = insert_into(session, Model).values(
        id=new_id(unix_ms(now)),
        created_at=now,
        updated_at=now,
        project_id=project_id,
        name=name,
        labels={},
    )
    session.execute(
        statement.on_conflict_do_nothing(
            index_elements=["project_id", "name"], index_where=sa.text("deleted_at IS NULL")
        )
    )
    return session.execute(
        sa.select(Model.id)
        .where(Model.project_id == project_id, Model.name == name, Model.deleted_at.is_(None))
        .with_for_update()
    ).scalar_one()


def _next_number(session: Session, model_id: UUID) -> int:
    newest = session.execute(
        sa.select(sa.func.max(ModelVersion.number)).where(ModelVersion.model_id == model_id)
    ).scalar_one()
    return (newest or 0) + 1


def _spell(value: float) -> str:
    if math.isnan(value):
        return "nan"
    return "inf" if value > 0 else "-inf"
