"""Jobs and all that belongs to one job."""

from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base, Identified, ProjectScoped, Versioned
from app.db.types import STATUS_LENGTH, JsonDocument, Sha256Hex, UtcTime, one_of
from app.domain.states import AttemptOutcome, JobStatus, Phase, StopReason

_DISPATCHED = sa.text("dispatched_at IS NOT NULL")
_LEASED = sa.text("status IN ('running', 'cancelling')")
_LIVE = sa.text("deleted_at IS NULL")


class Job(Versioned, ProjectScoped, Base):
    """One job. `status` changes through `app.db.transition` only."""

    __tablename__ = "jobs"
    __table_args__ = (
        sa.UniqueConstraint("project_id", "id"),
        sa.CheckConstraint(one_of("status", JobStatus), name="status"),
        sa.CheckConstraint(one_of("phase", Phase), name="phase"),
        sa.CheckConstraint(one_of("stop_requested", StopReason), name="stop_requested"),
        sa.CheckConstraint(
            "(status IN ('running', 'cancelling')) = (lease_expires_at IS NOT NULL)", name="lease"
        ),
        sa.CheckConstraint("dispatched_at IS NULL OR status = 'queued'", name="dispatched"),
        sa.CheckConstraint(
            "(status IN ('succeeded', 'failed', 'cancelled')) = (finished_at IS NOT NULL)",
            name="finished",
        ),
        # Each job's place among those of its project that wait. This one and the one of monitoring
        # hold all that is asked, and are not partial: SQLite would read the rows of a partial one.
        sa.Index(
            "ix_jobs_line",
            "project_id",
            "status",
            "device_class",
            "priority",
            "queued_at",
            "id",
            "deleted_at",
        ),
        sa.Index(
            "ix_jobs_dispatched",
            "project_id",
            sqlite_where=_DISPATCHED,
            postgresql_where=_DISPATCHED,
        ),
        sa.Index(
            "ix_jobs_lease", "lease_expires_at", sqlite_where=_LEASED, postgresql_where=_LEASED
        ),
        sa.Index(
            "ix_jobs_list",
            "project_id",
            "id",
            sqlite_where=_LIVE,
            postgresql_where=_LIVE,
        ),
        sa.Index("ix_jobs_status", "project_id", "status", "id"),
        # Monitoring counts by these at every scrape, the dispatcher in every round.
        sa.Index(
            "ix_jobs_counts", "status", "device_class", "queued_at", "dispatched_at", "deleted_at"
        ),
        sa.Index(None, "project_id", "finished_at"),
    )

    kind: Mapped[str] = mapped_column(sa.String(STATUS_LENGTH))
    name: Mapped[str | None] = mapped_column(sa.String(200))
    status: Mapped[str] = mapped_column(sa.String(STATUS_LENGTH))
    phase: Mapped[str | None] = mapped_column(sa.String(STATUS_LENGTH))
    method: Mapped[str] = mapped_column(sa.String(64))
    method_version: Mapped[str] = mapped_column(sa.String(32))
    spec: Mapped[dict[str, Any]] = mapped_column(JsonDocument)
    resolved_spec: Mapped[dict[str, Any]] = mapped_column(JsonDocument)
    spec_hash: Mapped[str] = mapped_column(Sha256Hex)
    model_version_id: Mapped[UUID | None] = mapped_column(sa.Uuid)
    device_class: Mapped[str] = mapped_column(sa.String(32))
    estimate: Mapped[dict[str, Any] | None] = mapped_column(JsonDocument)
    priority: Mapped[int] = mapped_column(sa.Integer, server_default="0")
    run_after: Mapped[datetime] = mapped_column(UtcTime)
    queued_at: Mapped[datetime | None] = mapped_column(UtcTime)
    started_at: Mapped[datetime | None] = mapped_column(UtcTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcTime)
    attempt: Mapped[int] = mapped_column(sa.Integer, server_default="0")
    failures: Mapped[int] = mapped_column(sa.Integer, server_default="0")
    max_attempts: Mapped[int] = mapped_column(sa.Integer)
    max_runtime_s: Mapped[int] = mapped_column(sa.Integer)
    fence: Mapped[int] = mapped_column(sa.BigInteger, server_default="0")
    worker_id: Mapped[UUID | None] = mapped_column(sa.Uuid)
    dispatched_at: Mapped[datetime | None] = mapped_column(UtcTime)
    dispatch: Mapped[int] = mapped_column(sa.Integer, server_default="0")
    published_at: Mapped[datetime | None] = mapped_column(UtcTime)
    lease_expires_at: Mapped[datetime | None] = mapped_column(UtcTime)
    stop_requested: Mapped[str | None] = mapped_column(sa.String(STATUS_LENGTH))
    keep_checkpoint: Mapped[bool] = mapped_column(sa.Boolean, server_default=sa.false())
    restart_from: Mapped[str] = mapped_column(sa.String(STATUS_LENGTH), server_default="checkpoint")
    progress: Mapped[dict[str, Any] | None] = mapped_column(JsonDocument)
    last_seq: Mapped[int] = mapped_column(sa.Integer, server_default="0")
    error: Mapped[dict[str, Any] | None] = mapped_column(JsonDocument)
    result: Mapped[dict[str, Any] | None] = mapped_column(JsonDocument)
    usage: Mapped[dict[str, Any] | None] = mapped_column(JsonDocument)
    seed: Mapped[int] = mapped_column(sa.BigInteger, server_default="0")
    labels: Mapped[dict[str, str]] = mapped_column(JsonDocument)
    created_request_id: Mapped[str | None] = mapped_column(sa.String(128))
    traceparent: Mapped[str | None] = mapped_column(sa.String(55))
    created_by_key_id: Mapped[UUID | None] = mapped_column(sa.Uuid)
    deleted_at: Mapped[datetime | None] = mapped_column(UtcTime)


class JobAttempt(Identified, ProjectScoped, Base):
    """One try at a job, from claim to outcome."""

    __tablename__ = "job_attempts"
    __table_args__ = (
        sa.ForeignKeyConstraint(["project_id", "job_id"], ["jobs.project_id", "jobs.id"]),
        sa.UniqueConstraint("job_id", "number"),
        sa.UniqueConstraint("job_id", "fence"),
        sa.CheckConstraint(one_of("outcome", AttemptOutcome), name="outcome"),
        sa.CheckConstraint("(outcome IS NULL) = (ended_at IS NULL)", name="ended"),
        sa.Index(None, "project_id", "ended_at"),
    )

    job_id: Mapped[UUID] = mapped_column(sa.Uuid)
    number: Mapped[int] = mapped_column(sa.Integer)
    fence: Mapped[int] = mapped_column(sa.BigInteger)
    worker_id: Mapped[UUID | None] = mapped_column(sa.Uuid)
    host: Mapped[str] = mapped_column(sa.String(255))
    pid: Mapped[int] = mapped_column(sa.Integer)
    device: Mapped[str | None] = mapped_column(sa.String(64))
    started_at: Mapped[datetime] = mapped_column(UtcTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcTime)
    outcome: Mapped[str | None] = mapped_column(sa.String(STATUS_LENGTH))
    error: Mapped[dict[str, Any] | None] = mapped_column(JsonDocument)
    exit_code: Mapped[int | None] = mapped_column(sa.Integer)
    signal: Mapped[int | None] = mapped_column(sa.Integer)
    peak_rss_bytes: Mapped[int | None] = mapped_column(sa.BigInteger)
    peak_gpu_bytes: Mapped[int | None] = mapped_column(sa.BigInteger)
    phase_seconds: Mapped[dict[str, float] | None] = mapped_column(JsonDocument)
    resumed_from: Mapped[str | None] = mapped_column(sa.String(STATUS_LENGTH))


class JobEvent(Base):
    """One event; `seq` is gapless per job from 1 but for pruned progress."""

    __tablename__ = "job_events"

    job_id: Mapped[UUID] = mapped_column(sa.ForeignKey("jobs.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(sa.Integer, primary_key=True, autoincrement=False)
    type: Mapped[str] = mapped_column(sa.String(48))
    level: Mapped[str] = mapped_column(sa.String(16))
    at: Mapped[datetime] = mapped_column(UtcTime)
    data: Mapped[dict[str, Any]] = mapped_column(JsonDocument)


class JobLogChunk(Base):
    """Lines one stream of an attempt wrote; the text itself lies in the store."""

    __tablename__ = "job_log_chunks"

    job_id: Mapped[UUID] = mapped_column(sa.ForeignKey("jobs.id"), primary_key=True)
    attempt: Mapped[int] = mapped_column(sa.Integer, primary_key=True, autoincrement=False)
    stream: Mapped[str] = mapped_column(sa.String(16), primary_key=True)
    n: Mapped[int] = mapped_column(sa.Integer, primary_key=True, autoincrement=False)
    first_line: Mapped[int] = mapped_column(sa.Integer)
    line_count: Mapped[int] = mapped_column(sa.Integer)
    byte_size: Mapped[int] = mapped_column(sa.Integer)
    storage_key: Mapped[str] = mapped_column(sa.String(300))
    first_at: Mapped[datetime] = mapped_column(UtcTime)
    last_at: Mapped[datetime] = mapped_column(UtcTime)


class MetricPoint(Base):
    """One point of a training curve."""

    __tablename__ = "metric_points"
    __table_args__ = (
        sa.CheckConstraint("(value IS NULL) <> (nonfinite IS NULL)", name="value_or_nonfinite"),
    )

    job_id: Mapped[UUID] = mapped_column(sa.ForeignKey("jobs.id"), primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(100), primary_key=True)
    attempt: Mapped[int] = mapped_column(sa.Integer, primary_key=True, autoincrement=False)
    step: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True, autoincrement=False)
    value: Mapped[float | None] = mapped_column(sa.Float)
    nonfinite: Mapped[str | None] = mapped_column(sa.String(4))
    at: Mapped[datetime] = mapped_column(UtcTime)


class EvaluationResult(Identified, ProjectScoped, Base):
    """One metric of one stage of a job, with its interval."""

    __tablename__ = "evaluation_results"
    __table_args__ = (
        sa.ForeignKeyConstraint(["project_id", "job_id"], ["jobs.project_id", "jobs.id"]),
        sa.UniqueConstraint("job_id", "stage", "benchmark", "metric", "group_key", "seed"),
        sa.CheckConstraint("stage IN ('before', 'after', 'only')", name="stage"),
    )

    job_id: Mapped[UUID] = mapped_column(sa.Uuid)
    fence: Mapped[int] = mapped_column(sa.BigInteger)
    stage: Mapped[str] = mapped_column(sa.String(STATUS_LENGTH))
    benchmark: Mapped[str] = mapped_column(sa.String(64))
    benchmark_version: Mapped[str] = mapped_column(sa.String(32))
    metric: Mapped[str] = mapped_column(sa.String(100))
    group_key: Mapped[str] = mapped_column(sa.String(200))
    seed: Mapped[int] = mapped_column(sa.BigInteger, server_default="0")
    value: Mapped[float | None] = mapped_column(sa.Float)
    nonfinite: Mapped[str | None] = mapped_column(sa.String(4))
    ci_low: Mapped[float | None] = mapped_column(sa.Float)
    ci_high: Mapped[float | None] = mapped_column(sa.Float)
    ci_level: Mapped[float | None] = mapped_column(sa.Float)
    n: Mapped[int] = mapped_column(sa.Integer)
    unit: Mapped[str] = mapped_column(sa.String(64))
    ideal: Mapped[float | None] = mapped_column(sa.Float)


class Artifact(Versioned, ProjectScoped, Base):
    """One file a job left behind, held by a blob."""

    __tablename__ = "artifacts"
    __table_args__ = (
        sa.ForeignKeyConstraint(["project_id", "job_id"], ["jobs.project_id", "jobs.id"]),
        sa.ForeignKeyConstraint(["project_id", "sha256"], ["blobs.project_id", "blobs.sha256"]),
        sa.UniqueConstraint("job_id", "name"),
        sa.Index(None, "project_id", "sha256"),
    )

    job_id: Mapped[UUID] = mapped_column(sa.Uuid)
    fence: Mapped[int] = mapped_column(sa.BigInteger)
    name: Mapped[str] = mapped_column(sa.String(400))
    type: Mapped[str] = mapped_column(sa.String(STATUS_LENGTH))
    media_type: Mapped[str] = mapped_column(sa.String(100))
    size_bytes: Mapped[int] = mapped_column(sa.BigInteger)
    sha256: Mapped[str] = mapped_column(Sha256Hex)
    expires_at: Mapped[datetime | None] = mapped_column(UtcTime)
    deleted_at: Mapped[datetime | None] = mapped_column(UtcTime)


class JobCheckpoint(Identified, ProjectScoped, Base):
    """A resumable point of a job: a finished phase (step null), or a step inside one."""

    __tablename__ = "checkpoints"
    __table_args__ = (
        sa.ForeignKeyConstraint(["project_id", "job_id"], ["jobs.project_id", "jobs.id"]),
        sa.ForeignKeyConstraint(
            ["project_id", "state_sha256"], ["blobs.project_id", "blobs.sha256"]
        ),
        sa.Index(None, "job_id", "phase", "step"),
        sa.Index(None, "project_id", "state_sha256"),
        sa.Index(None, "project_id", "arrays_sha256"),
        sa.CheckConstraint(one_of("phase", Phase), name="phase"),
    )

    job_id: Mapped[UUID] = mapped_column(sa.Uuid)
    fence: Mapped[int] = mapped_column(sa.BigInteger)
    phase: Mapped[str] = mapped_column(sa.String(STATUS_LENGTH))
    step: Mapped[int | None] = mapped_column(sa.BigInteger)
    size_bytes: Mapped[int] = mapped_column(sa.BigInteger)
    state_sha256: Mapped[str] = mapped_column(Sha256Hex)
    arrays_sha256: Mapped[str | None] = mapped_column(Sha256Hex)
    spec_hash: Mapped[str] = mapped_column(Sha256Hex)
    engine_version: Mapped[str] = mapped_column(sa.String(64))
    deleted_at: Mapped[datetime | None] = mapped_column(UtcTime)


# The condition of a partial index, with the values in its text: neither planner can prove that a
# value it is given later fits (on SQLite the search for expired leases read all 10,000 rows).
IS_LEASED = Job.status.in_([sa.literal_column("'running'"), sa.literal_column("'cancelling'")])
