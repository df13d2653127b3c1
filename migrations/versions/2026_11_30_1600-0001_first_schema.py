"""The first schema.

Revision ID: 0001
Revises: none
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
TIME = sa.DateTime(timezone=True).with_variant(sa.String(27), "sqlite")


def upgrade() -> None:
    """Create all tables."""
    op.create_table(
        "outbox",
        sa.Column("topic", sa.String(length=32), nullable=False),
        sa.Column("aggregate_id", sa.Uuid(), nullable=False),
        sa.Column("payload", JSON, nullable=False),
        sa.Column("available_at", TIME, nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("published_at", TIME, nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outbox")),
    )
    with op.batch_alter_table("outbox", schema=None) as batch_op:
        batch_op.create_index(
            "ix_outbox_due",
            ["available_at"],
            unique=False,
            sqlite_where=sa.text("published_at IS NULL"),
            postgresql_where=sa.text("published_at IS NULL"),
        )

    op.create_table(
        "projects",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("weight", sa.Float(), server_default="1", nullable=False),
        sa.Column("max_running", sa.Integer(), server_default="16", nullable=False),
        sa.Column("max_queued", sa.Integer(), server_default="100", nullable=False),
        sa.Column("suspended", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.CheckConstraint("weight > 0", name=op.f("ck_projects_weight")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_projects")),
        sa.UniqueConstraint("name", name=op.f("uq_projects_name")),
    )
    op.create_table(
        "workers",
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("boot_id", sa.String(length=64), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("classes", JSON, nullable=False),
        sa.Column("device", sa.String(length=64), nullable=False),
        sa.Column("gpu_bytes", sa.BigInteger(), nullable=True),
        sa.Column("host_bytes", sa.BigInteger(), nullable=True),
        sa.Column("disk_free_bytes", sa.BigInteger(), nullable=True),
        sa.Column("disk_low", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("versions", JSON, nullable=False),
        sa.Column("state", sa.String(length=24), nullable=False),
        sa.Column("current_job_id", sa.Uuid(), nullable=True),
        sa.Column("last_seen_at", TIME, nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.CheckConstraint(
            "state IN ('ready', 'draining', 'stopped', 'lost')", name=op.f("ck_workers_state")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
    )
    with op.batch_alter_table("workers", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_workers_last_seen_at"), ["last_seen_at"], unique=False)

    op.create_table(
        "api_keys",
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("prefix", sa.String(length=8), nullable=False),
        sa.Column("secret_sha256", sa.String(length=64), nullable=False),
        sa.Column("scopes", JSON, nullable=False),
        sa.Column("expires_at", TIME, nullable=True),
        sa.Column("revoked_at", TIME, nullable=True),
        sa.Column("last_used_at", TIME, nullable=True),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_api_keys_project_id_projects")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("prefix", name=op.f("uq_api_keys_prefix")),
    )
    with op.batch_alter_table("api_keys", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_api_keys_project_id_id"), ["project_id", "id"], unique=False
        )

    op.create_table(
        "blobs",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("storage_key", sa.String(length=300), nullable=False),
        sa.Column("state", sa.String(length=24), server_default="stored", nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("last_referenced_at", TIME, nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.CheckConstraint("state IN ('stored', 'deleting')", name=op.f("ck_blobs_state")),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_blobs_project_id_projects")
        ),
        sa.PrimaryKeyConstraint("project_id", "sha256", name=op.f("pk_blobs")),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("route", sa.String(length=100), nullable=False),
        sa.Column("request_sha256", sa.String(length=64), nullable=False),
        sa.Column("status_code", sa.Integer(), nullable=False),
        sa.Column("response", JSON, nullable=False),
        sa.Column("location", sa.String(length=200), nullable=True),
        sa.Column("resource_id", sa.Uuid(), nullable=True),
        sa.Column("expires_at", TIME, nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_idempotency_keys_project_id_projects")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_idempotency_keys")),
        sa.UniqueConstraint("project_id", "key", name=op.f("uq_idempotency_keys_project_id_key")),
    )
    with op.batch_alter_table("idempotency_keys", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_idempotency_keys_expires_at"), ["expires_at"], unique=False
        )

    op.create_table(
        "jobs",
        sa.Column("kind", sa.String(length=24), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=True),
        sa.Column("status", sa.String(length=24), nullable=False),
        sa.Column("phase", sa.String(length=24), nullable=True),
        sa.Column("method", sa.String(length=64), nullable=False),
        sa.Column("method_version", sa.String(length=32), nullable=False),
        sa.Column("spec", JSON, nullable=False),
        sa.Column("resolved_spec", JSON, nullable=False),
        sa.Column("spec_hash", sa.String(length=64), nullable=False),
        sa.Column("model_version_id", sa.Uuid(), nullable=True),
        sa.Column("device_class", sa.String(length=32), nullable=False),
        sa.Column("estimate", JSON, nullable=True),
        sa.Column("priority", sa.Integer(), server_default="0", nullable=False),
        sa.Column("run_after", TIME, nullable=False),
        sa.Column("queued_at", TIME, nullable=True),
        sa.Column("started_at", TIME, nullable=True),
        sa.Column("finished_at", TIME, nullable=True),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("failures", sa.Integer(), server_default="0", nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("max_runtime_s", sa.Integer(), nullable=False),
        sa.Column("fence", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("worker_id", sa.Uuid(), nullable=True),
        sa.Column("dispatched_at", TIME, nullable=True),
        sa.Column("dispatch", sa.Integer(), server_default="0", nullable=False),
        sa.Column("published_at", TIME, nullable=True),
        sa.Column("lease_expires_at", TIME, nullable=True),
        sa.Column("stop_requested", sa.String(length=24), nullable=True),
        sa.Column("keep_checkpoint", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column(
            "restart_from", sa.String(length=24), server_default="checkpoint", nullable=False
        ),
        sa.Column("progress", JSON, nullable=True),
        sa.Column("last_seq", sa.Integer(), server_default="0", nullable=False),
        sa.Column("error", JSON, nullable=True),
        sa.Column("result", JSON, nullable=True),
        sa.Column("usage", JSON, nullable=True),
        sa.Column("seed", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("labels", JSON, nullable=False),
        sa.Column("created_request_id", sa.String(length=128), nullable=True),
        sa.Column("traceparent", sa.String(length=55), nullable=True),
        sa.Column("created_by_key_id", sa.Uuid(), nullable=True),
        sa.Column("deleted_at", TIME, nullable=True),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.CheckConstraint(
            "(status IN ('running', 'cancelling')) = (lease_expires_at IS NOT NULL)",
            name=op.f("ck_jobs_lease"),
        ),
        sa.CheckConstraint(
            "(status IN ('succeeded', 'failed', 'cancelled')) = (finished_at IS NOT NULL)",
            name=op.f("ck_jobs_finished"),
        ),
        sa.CheckConstraint(
            "dispatched_at IS NULL OR status = 'queued'", name=op.f("ck_jobs_dispatched")
        ),
        sa.CheckConstraint(
            "phase IN ('preparing', 'evaluating_before', 'debiasing', 'evaluating_after', 'packaging', 'uploading')",
            name=op.f("ck_jobs_phase"),
        ),
        sa.CheckConstraint(
            "status IN ('pending', 'queued', 'running', 'cancelling', 'paused', 'succeeded', 'failed', 'cancelled')",
            name=op.f("ck_jobs_status"),
        ),
        sa.CheckConstraint(
            "stop_requested IN ('cancel', 'pause')", name=op.f("ck_jobs_stop_requested")
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_jobs_project_id_projects")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sa.UniqueConstraint("project_id", "id", name=op.f("uq_jobs_project_id_id")),
    )
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.create_index(
            "ix_jobs_claim",
            ["device_class", "run_after", "priority", "queued_at"],
            unique=False,
            sqlite_where=sa.text("status = 'queued'"),
            postgresql_where=sa.text("status = 'queued'"),
        )
        batch_op.create_index(
            "ix_jobs_lease",
            ["lease_expires_at"],
            unique=False,
            sqlite_where=sa.text("status IN ('running', 'cancelling')"),
            postgresql_where=sa.text("status IN ('running', 'cancelling')"),
        )
        batch_op.create_index(
            "ix_jobs_list",
            ["project_id", "id"],
            unique=False,
            sqlite_where=sa.text("deleted_at IS NULL"),
            postgresql_where=sa.text("deleted_at IS NULL"),
        )
        batch_op.create_index("ix_jobs_status", ["project_id", "status", "id"], unique=False)

    op.create_table(
        "models",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("labels", JSON, nullable=False),
        sa.Column("deleted_at", TIME, nullable=True),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_models_project_id_projects")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models")),
    )
    with op.batch_alter_table("models", schema=None) as batch_op:
        batch_op.create_index(
            "uq_models_live_name",
            ["project_id", "name"],
            unique=True,
            sqlite_where=sa.text("deleted_at IS NULL"),
            postgresql_where=sa.text("deleted_at IS NULL"),
        )

    op.create_table(
        "artifacts",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.String(length=400), nullable=False),
        sa.Column("type", sa.String(length=24), nullable=False),
        sa.Column("media_type", sa.String(length=100), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("expires_at", TIME, nullable=True),
        sa.Column("deleted_at", TIME, nullable=True),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id", "job_id"],
            ["jobs.project_id", "jobs.id"],
            name=op.f("fk_artifacts_project_id_job_id_jobs"),
        ),
        sa.ForeignKeyConstraint(
            ["project_id", "sha256"],
            ["blobs.project_id", "blobs.sha256"],
            name=op.f("fk_artifacts_project_id_sha256_blobs"),
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_artifacts_project_id_projects")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_artifacts")),
        sa.UniqueConstraint("job_id", "name", name=op.f("uq_artifacts_job_id_name")),
    )
    op.create_table(
        "checkpoints",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("phase", sa.String(length=24), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("state_sha256", sa.String(length=64), nullable=False),
        sa.Column("arrays_sha256", sa.String(length=64), nullable=True),
        sa.Column("spec_hash", sa.String(length=64), nullable=False),
        sa.Column("engine_version", sa.String(length=64), nullable=False),
        sa.Column("deleted_at", TIME, nullable=True),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.CheckConstraint(
            "phase IN ('preparing', 'evaluating_before', 'debiasing', 'evaluating_after', 'packaging', 'uploading')",
            name=op.f("ck_checkpoints_phase"),
        ),
        sa.ForeignKeyConstraint(
            ["project_id", "job_id"],
            ["jobs.project_id", "jobs.id"],
            name=op.f("fk_checkpoints_project_id_job_id_jobs"),
        ),
        sa.ForeignKeyConstraint(
            ["project_id", "state_sha256"],
            ["blobs.project_id", "blobs.sha256"],
            name=op.f("fk_checkpoints_project_id_state_sha256_blobs"),
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_checkpoints_project_id_projects")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_checkpoints")),
    )
    with op.batch_alter_table("checkpoints", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_checkpoints_job_id_phase_step"),
            ["job_id", "phase", "step"],
            unique=False,
        )

    op.create_table(
        "evaluation_results",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("stage", sa.String(length=24), nullable=False),
        sa.Column("benchmark", sa.String(length=64), nullable=False),
        sa.Column("benchmark_version", sa.String(length=32), nullable=False),
        sa.Column("metric", sa.String(length=100), nullable=False),
        sa.Column("group_key", sa.String(length=200), nullable=False),
        sa.Column("seed", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("value", sa.Float(), nullable=True),
        sa.Column("nonfinite", sa.String(length=4), nullable=True),
        sa.Column("ci_low", sa.Float(), nullable=True),
        sa.Column("ci_high", sa.Float(), nullable=True),
        sa.Column("ci_level", sa.Float(), nullable=True),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("unit", sa.String(length=64), nullable=False),
        sa.Column("ideal", sa.Float(), nullable=True),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.CheckConstraint(
            "stage IN ('before', 'after', 'only')", name=op.f("ck_evaluation_results_stage")
        ),
        sa.ForeignKeyConstraint(
            ["project_id", "job_id"],
            ["jobs.project_id", "jobs.id"],
            name=op.f("fk_evaluation_results_project_id_job_id_jobs"),
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_evaluation_results_project_id_projects")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_evaluation_results")),
        sa.UniqueConstraint(
            "job_id",
            "stage",
            "benchmark",
            "metric",
            "group_key",
            "seed",
            name=op.f("uq_evaluation_results_job_id_stage_benchmark_metric_group_key_seed"),
        ),
    )
    op.create_table(
        "job_attempts",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("worker_id", sa.Uuid(), nullable=True),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("ended_at", TIME, nullable=True),
        sa.Column("outcome", sa.String(length=24), nullable=True),
        sa.Column("error", JSON, nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("signal", sa.Integer(), nullable=True),
        sa.Column("peak_rss_bytes", sa.BigInteger(), nullable=True),
        sa.Column("peak_gpu_bytes", sa.BigInteger(), nullable=True),
        sa.Column("phase_seconds", JSON, nullable=True),
        sa.Column("resumed_from", sa.String(length=24), nullable=True),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.CheckConstraint(
            "outcome IN ('succeeded', 'failed', 'cancelled', 'drained', 'paused', 'released', 'lost', 'fenced')",
            name=op.f("ck_job_attempts_outcome"),
        ),
        sa.CheckConstraint(
            "(outcome IS NULL) = (ended_at IS NULL)", name=op.f("ck_job_attempts_ended")
        ),
        sa.ForeignKeyConstraint(
            ["project_id", "job_id"],
            ["jobs.project_id", "jobs.id"],
            name=op.f("fk_job_attempts_project_id_job_id_jobs"),
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_job_attempts_project_id_projects")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_attempts")),
        sa.UniqueConstraint("job_id", "fence", name=op.f("uq_job_attempts_job_id_fence")),
        sa.UniqueConstraint("job_id", "number", name=op.f("uq_job_attempts_job_id_number")),
    )
    op.create_table(
        "job_events",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("seq", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("type", sa.String(length=48), nullable=False),
        sa.Column("level", sa.String(length=16), nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("data", JSON, nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_job_events_job_id_jobs")),
        sa.PrimaryKeyConstraint("job_id", "seq", name=op.f("pk_job_events")),
    )
    op.create_table(
        "job_log_chunks",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("stream", sa.String(length=16), nullable=False),
        sa.Column("n", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("first_line", sa.Integer(), nullable=False),
        sa.Column("line_count", sa.Integer(), nullable=False),
        sa.Column("byte_size", sa.Integer(), nullable=False),
        sa.Column("storage_key", sa.String(length=300), nullable=False),
        sa.Column("first_at", TIME, nullable=False),
        sa.Column("last_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_job_log_chunks_job_id_jobs")
        ),
        sa.PrimaryKeyConstraint("job_id", "attempt", "stream", "n", name=op.f("pk_job_log_chunks")),
    )
    op.create_table(
        "metric_points",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("value", sa.Float(), nullable=True),
        sa.Column("nonfinite", sa.String(length=4), nullable=True),
        sa.Column("at", TIME, nullable=False),
        sa.CheckConstraint(
            "(value IS NULL) <> (nonfinite IS NULL)",
            name=op.f("ck_metric_points_value_or_nonfinite"),
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_metric_points_job_id_jobs")),
        sa.PrimaryKeyConstraint("job_id", "name", "attempt", "step", name=op.f("pk_metric_points")),
    )
    op.create_table(
        "model_versions",
        sa.Column("model_id", sa.Uuid(), nullable=True),
        sa.Column("number", sa.Integer(), nullable=True),
        sa.Column("source", JSON, nullable=False),
        sa.Column("model_type", sa.String(length=64), nullable=False),
        sa.Column("architecture", sa.String(length=128), nullable=True),
        sa.Column("params", sa.BigInteger(), nullable=False),
        sa.Column("dtype", sa.String(length=16), nullable=True),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("content_sha256", sa.String(length=64), nullable=False),
        sa.Column("base_source", JSON, nullable=True),
        sa.Column("created_by_job_id", sa.Uuid(), nullable=True),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.CheckConstraint(
            "(model_id IS NULL) = (number IS NULL)",
            name=op.f("ck_model_versions_numbered_when_named"),
        ),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_model_versions_model_id_models")
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_model_versions_project_id_projects")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model_versions")),
        sa.UniqueConstraint("created_by_job_id", name=op.f("uq_model_versions_created_by_job_id")),
        sa.UniqueConstraint("model_id", "number", name=op.f("uq_model_versions_model_id_number")),
        sa.UniqueConstraint("project_id", "id", name=op.f("uq_model_versions_project_id_id")),
    )
    with op.batch_alter_table("model_versions", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_model_versions_project_id_content_sha256"),
            ["project_id", "content_sha256"],
            unique=False,
        )

    op.create_table(
        "model_files",
        sa.Column("model_version_id", sa.Uuid(), nullable=False),
        sa.Column("path", sa.String(length=400), nullable=False),
        sa.Column("blob_sha256", sa.String(length=64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["model_version_id"],
            ["model_versions.id"],
            name=op.f("fk_model_files_model_version_id_model_versions"),
        ),
        sa.PrimaryKeyConstraint("model_version_id", "path", name=op.f("pk_model_files")),
    )


def downgrade() -> None:
    """Drop all tables."""
    op.drop_table("model_files")
    with op.batch_alter_table("model_versions", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_model_versions_project_id_content_sha256"))

    op.drop_table("model_versions")
    op.drop_table("metric_points")
    op.drop_table("job_log_chunks")
    op.drop_table("job_events")
    op.drop_table("job_attempts")
    op.drop_table("evaluation_results")
    with op.batch_alter_table("checkpoints", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_checkpoints_job_id_phase_step"))

    op.drop_table("checkpoints")
    op.drop_table("artifacts")
    with op.batch_alter_table("models", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_models_live_name",
            sqlite_where=sa.text("deleted_at IS NULL"),
            postgresql_where=sa.text("deleted_at IS NULL"),
        )

    op.drop_table("models")
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_index("ix_jobs_status")
        batch_op.drop_index(
            "ix_jobs_list",
            sqlite_where=sa.text("deleted_at IS NULL"),
            postgresql_where=sa.text("deleted_at IS NULL"),
        )
        batch_op.drop_index(
            "ix_jobs_lease",
            sqlite_where=sa.text("status IN ('running', 'cancelling')"),
            postgresql_where=sa.text("status IN ('running', 'cancelling')"),
        )
        batch_op.drop_index(
            "ix_jobs_claim",
            sqlite_where=sa.text("status = 'queued'"),
            postgresql_where=sa.text("status = 'queued'"),
        )

    op.drop_table("jobs")
    with op.batch_alter_table("idempotency_keys", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_idempotency_keys_expires_at"))

    op.drop_table("idempotency_keys")
    op.drop_table("blobs")
    with op.batch_alter_table("api_keys", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_api_keys_project_id_id"))

    op.drop_table("api_keys")
    with op.batch_alter_table("workers", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_workers_last_seen_at"))

    op.drop_table("workers")
    op.drop_table("projects")
    with op.batch_alter_table("outbox", schema=None) as batch_op:
        batch_op.drop_index(
            "ix_outbox_due",
            sqlite_where=sa.text("published_at IS NULL"),
            postgresql_where=sa.text("published_at IS NULL"),
        )

    op.drop_table("outbox")
