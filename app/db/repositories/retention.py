"""What has outlived its time, over all projects: jobs, their records, and rows of operation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased

from app.db.base import Identified
from app.db.repositories.blobs import Condition, JobCondition
from app.db.repositories.tallies import remember_ended
from app.db.tables import (
    Artifact,
    EvaluationResult,
    IdempotencyKey,
    Job,
    JobAttempt,
    JobCheckpoint,
    JobEvent,
    JobLogChunk,
    MetricPoint,
    ModelFile,
    ModelVersion,
    OutboxMessage,
    Project,
    Worker,
)
from app.domain.retention import Horizon
from app.domain.states import LEASED, TERMINAL

_HAS_ENDED = Job.status.in_(TERMINAL)


@dataclass(frozen=True, slots=True)
class ProjectRetention:
    """How long a project keeps the artifacts of jobs that registered no model."""

    project_id: UUID
    days: int

    def ended_before(self, horizon: Horizon) -> datetime:
        """Jobs that ended before that moment have expired."""
        return horizon.now - timedelta(days=self.days)


@dataclass(frozen=True, slots=True)
class LogPart:
    """One part of a log, by its row and by its key in the store."""

    job_id: UUID
    attempt: int
    stream: str
    number: int
    size_bytes: int
    key: str


@dataclass(frozen=True, slots=True)
class RowRule:
    """Rows that simply go when they are old."""

    kind: str
    table: type[Identified]
    due: Callable[[Horizon], Condition]


ROW_RULES = (
    RowRule("outbox", OutboxMessage, lambda h: OutboxMessage.published_at < h.outbox),
    RowRule("idempotency_keys", IdempotencyKey, lambda h: IdempotencyKey.expires_at <= h.now),
    RowRule("workers", Worker, lambda h: _forgotten_worker(h.workers)),
)


def oldest_live_attempt(session: Session) -> datetime | None:
    """When the oldest attempt began that can still commit something."""
    statement = (
        sa.select(sa.func.min(JobAttempt.started_at))
        .join(Job, sa.and_(Job.id == JobAttempt.job_id, Job.fence == JobAttempt.fence))
        .where(Job.status.in_(LEASED))
    )
    return session.execute(statement).scalar_one()


def list_retentions(session: Session) -> list[ProjectRetention]:
    """List the retention of every project."""
    rows = session.execute(sa.select(Project.id, Project.retention_days).order_by(Project.id))
    return [ProjectRetention(*row) for row in rows]


def count_rows(session: Session, rule: RowRule, horizon: Horizon) -> int:
    """Count the rows that a rule would delete."""
    statement = sa.select(sa.func.count(rule.table.id)).where(rule.due(horizon))
    return session.execute(statement).scalar_one()


def delete_rows(session: Session, rule: RowRule, horizon: Horizon, *, limit: int) -> int:
    """Delete some of them."""
    chosen = sa.select(rule.table.id).where(rule.due(horizon)).order_by(rule.table.id).limit(limit)
    statement = sa.delete(rule.table).where(
        rule.table.id.in_(chosen.with_for_update(skip_locked=True))
    )
    return len(session.execute(statement.returning(rule.table.id)).all())


def released(retentions: Sequence[ProjectRetention], horizon: Horizon) -> JobCondition:
    """Write that the bytes of the job with an id are about to be given up."""
    due = [_has_expired(retention, horizon) for retention in retentions]

    def of(job_id: InstrumentedAttribute[Any]) -> Condition:
        return sa.exists().where(Job.id == job_id, sa.or_(_is_purgeable(horizon), *due))

    return of


def count_expiring(session: Session, retention: ProjectRetention, horizon: Horizon) -> int:
    """Count the artifacts that expire."""
    statement = (
        sa.select(sa.func.count())
        .select_from(Artifact)
        .join(Job, Job.id == Artifact.job_id)
        .where(Artifact.deleted_at.is_(None), _has_expired(retention, horizon))
    )
    return session.execute(statement).scalar_one()


def expire_jobs(
    session: Session, retention: ProjectRetention, horizon: Horizon, *, limit: int
) -> tuple[int, int]:
    """Give up the bytes of some expired jobs; count the jobs and their artifacts.

    The rows of the artifacts stay, with the moment, and so does the row of the model version.
    """
    files = sa.exists().where(
        ModelVersion.created_by_job_id == Job.id, ModelFile.model_version_id == ModelVersion.id
    )
    artifacts = sa.exists().where(Artifact.job_id == Job.id, Artifact.deleted_at.is_(None))
    jobs = session.execute(
        sa.select(Job.id, Job.finished_at)
        .where(_has_expired(retention, horizon), sa.or_(artifacts, files))
        .order_by(Job.id)
        .limit(limit)
        .with_for_update(skip_locked=True, key_share=True)
    ).all()
    count = 0
    for job_id, finished_at in jobs:
        changed = session.execute(
            sa.update(Artifact)
            .where(Artifact.job_id == job_id, Artifact.deleted_at.is_(None))
            .values(
                deleted_at=horizon.now,
                expires_at=_expiry(finished_at, retention),
                updated_at=horizon.now,
                version=Artifact.version + 1,
            )
            .returning(Artifact.id)
        )
        count += len(changed.all())
    _delete_files(session, [job_id for job_id, _ in jobs])
    return len(jobs), count


def redate_artifacts(
    session: Session, retention: ProjectRetention, *, after: UUID | None, limit: int, now: datetime
) -> UUID | None:
    """Make the announced expiry of artifacts right for some jobs; say after which id to go on.

    It is wrong after the project's retention has changed, or a job's model was registered.
    """
    statement = (
        sa.select(Job.id, Job.finished_at, _is_kept().label("kept"), Artifact.expires_at)
        .join(Artifact, Artifact.job_id == Job.id)
        .where(
            Job.project_id == retention.project_id,
            Job.finished_at.is_not(None),
            Artifact.deleted_at.is_(None),
        )
        .distinct()
        .order_by(Job.id)
        .limit(limit)
    )
    if after is not None:
        statement = statement.where(Job.id > after)
    rows = session.execute(statement).all()
    for job_id, finished_at, kept, announced in rows:
        due = None if kept else _expiry(finished_at, retention)
        if due != announced:
            session.execute(
                sa.update(Artifact)
                .where(Artifact.job_id == job_id, Artifact.deleted_at.is_(None))
                .values(expires_at=due, updated_at=now, version=Artifact.version + 1)
            )
    return rows[-1].id if len(rows) == limit else None


def count_checkpoints(session: Session, retention: ProjectRetention, horizon: Horizon) -> int:
    """Count the checkpoints that nobody can resume from any more."""
    condition = _is_dead_checkpoint(retention, horizon)
    return session.execute(sa.select(sa.func.count(JobCheckpoint.id)).where(condition)).scalar_one()


def delete_checkpoints(
    session: Session, retention: ProjectRetention, horizon: Horizon, *, limit: int
) -> int:
    """Delete the rows of some of them; their bytes are blobs."""
    condition = _is_dead_checkpoint(retention, horizon)
    chosen = sa.select(JobCheckpoint.id).where(condition).limit(limit)
    statement = sa.delete(JobCheckpoint).where(
        JobCheckpoint.id.in_(chosen.with_for_update(skip_locked=True))
    )
    return len(session.execute(statement.returning(JobCheckpoint.id)).all())


def count_log_parts(session: Session, horizon: Horizon) -> tuple[int, int]:
    """Count the log parts that are too old, and their bytes."""
    statement = (
        sa.select(sa.func.count(), sa.func.sum(JobLogChunk.byte_size))
        .join(Job, Job.id == JobLogChunk.job_id)
        .where(_has_old(horizon.logs, horizon))
    )
    rows, size_bytes = session.execute(statement).one()
    return rows, int(size_bytes or 0)


def old_log_parts(session: Session, horizon: Horizon, *, limit: int) -> list[LogPart]:
    """List log parts that are too old."""
    statement = (
        sa.select(
            JobLogChunk.job_id,
            JobLogChunk.attempt,
            JobLogChunk.stream,
            JobLogChunk.n,
            JobLogChunk.byte_size,
            JobLogChunk.storage_key,
        )
        .join(Job, Job.id == JobLogChunk.job_id)
        .where(_has_old(horizon.logs, horizon))
        .order_by(JobLogChunk.job_id, JobLogChunk.attempt, JobLogChunk.stream, JobLogChunk.n)
        .limit(limit)
    )
    return [LogPart(*row) for row in session.execute(statement)]


def delete_log_parts(session: Session, parts: Sequence[LogPart]) -> int:
    """Delete the rows of log parts whose bytes are gone."""
    row = sa.tuple_(JobLogChunk.job_id, JobLogChunk.attempt, JobLogChunk.stream, JobLogChunk.n)
    keys = [(part.job_id, part.attempt, part.stream, part.number) for part in parts]
    deleted = session.execute(
        sa.delete(JobLogChunk).where(row.in_(keys)).returning(JobLogChunk.storage_key)
    )
    return len(deleted.all())


def count_events(session: Session, horizon: Horizon) -> int:
    """Count the events of jobs that ended long ago."""
    statement = (
        sa.select(sa.func.count())
        .select_from(JobEvent)
        .join(Job, Job.id == JobEvent.job_id)
        .where(_has_old(horizon.events, horizon))
    )
    return session.execute(statement).scalar_one()


def delete_events(session: Session, horizon: Horizon, *, jobs: int) -> int:
    """Delete the events of some of these jobs."""
    chosen = (
        sa.select(Job.id)
        .where(_has_old(horizon.events, horizon), sa.exists().where(JobEvent.job_id == Job.id))
        .order_by(Job.id)
        .limit(jobs)
    )
    deleted = session.execute(
        sa.delete(JobEvent).where(JobEvent.job_id.in_(chosen)).returning(JobEvent.seq)
    )
    return len(deleted.all())


def count_purgeable(session: Session, horizon: Horizon) -> int:
    """Count the jobs that were deleted long enough ago."""
    return session.execute(
        sa.select(sa.func.count(Job.id)).where(_is_purgeable(horizon))
    ).scalar_one()


def purge_jobs(session: Session, horizon: Horizon, *, limit: int) -> int:
    """Delete some of these jobs with all rows below them; what lies in the store went before.

    A registered model version stays, with its files.
    """
    chosen = session.execute(
        sa.select(Job.id)
        .where(_is_purgeable(horizon), ~sa.exists().where(JobLogChunk.job_id == Job.id))
        .order_by(Job.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    job_ids = list(chosen.scalars())
    remember_ended(session, job_ids)
    _delete_files(session, job_ids)
    unnamed = sa.and_(ModelVersion.created_by_job_id.in_(job_ids), ModelVersion.model_id.is_(None))
    session.execute(sa.delete(ModelVersion).where(unnamed))
    for table in (
        JobEvent,
        MetricPoint,
        EvaluationResult,
        JobCheckpoint,
        Artifact,
        JobAttempt,
    ):
        session.execute(sa.delete(table).where(table.job_id.in_(job_ids)))
    session.execute(sa.delete(Job).where(Job.id.in_(job_ids)))
    return len(job_ids)


def _delete_files(session: Session, job_ids: Sequence[UUID]) -> None:
    """Delete the rows of the files of versions that nobody named."""
    versions = sa.select(ModelVersion.id).where(
        ModelVersion.created_by_job_id.in_(job_ids), ModelVersion.model_id.is_(None)
    )
    session.execute(sa.delete(ModelFile).where(ModelFile.model_version_id.in_(versions)))


def _expiry(finished_at: datetime | None, retention: ProjectRetention) -> datetime:
    assert finished_at is not None  # noqa: S101 - a CHECK: the job has ended
    return finished_at + timedelta(days=retention.days)


def _is_kept() -> Condition:
    """Say that the job's output is a registered model version."""
    return sa.exists().where(
        ModelVersion.created_by_job_id == Job.id, ModelVersion.model_id.is_not(None)
    )


def _is_needed() -> Condition:
    """Say that a job which has not ended works on the job's output."""
    user = aliased(Job)
    return sa.exists().where(
        ModelVersion.created_by_job_id == Job.id,
        user.model_version_id == ModelVersion.id,
        user.status.not_in(TERMINAL),
    )


def _has_expired(retention: ProjectRetention, horizon: Horizon) -> Condition:
    return sa.and_(
        Job.project_id == retention.project_id,
        _HAS_ENDED,
        Job.finished_at <= retention.ended_before(horizon),
        ~_is_kept(),
        ~_is_needed(),
    )


def _is_purgeable(horizon: Horizon) -> Condition:
    return sa.and_(Job.deleted_at <= horizon.deleted_jobs, _HAS_ENDED, ~_is_needed())


def _has_old(ended_before: datetime, horizon: Horizon) -> Condition:
    """Say that records of the job are too old, or the job is about to be purged."""
    ended = sa.and_(_HAS_ENDED, Job.finished_at <= ended_before)
    return sa.or_(ended, _is_purgeable(horizon))


def _is_dead_checkpoint(retention: ProjectRetention, horizon: Horizon) -> Condition:
    ended = sa.exists().where(
        Job.id == JobCheckpoint.job_id,
        _HAS_ENDED,
        Job.finished_at <= retention.ended_before(horizon),
    )
    return sa.and_(
        JobCheckpoint.project_id == retention.project_id,
        sa.or_(JobCheckpoint.deleted_at.is_not(None), ended),
    )


def _forgotten_worker(seen_before: datetime) -> Condition:
    busy = sa.exists().where(Job.worker_id == Worker.id, Job.status.in_(LEASED))
    return sa.and_(Worker.state.in_(("stopped", "lost")), Worker.last_seen_at < seen_before, ~busy)
