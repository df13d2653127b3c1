"""Limits of a project, its secrets, the audit log, and the indexes that retention looks through.

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
TIME = sa.DateTime(timezone=True).with_variant(sa.String(27), "sqlite")

INDEXES = {
    "artifacts": (("project_id", "sha256"),),
    "blobs": (("last_referenced_at",), ("project_id", "state", "size_bytes")),
    "checkpoints": (("project_id", "state_sha256"), ("project_id", "arrays_sha256")),
    "model_files": (("blob_sha256",),),
    "jobs": (("project_id", "finished_at"),),
    "job_attempts": (("project_id", "ended_at"),),
}
LIVE = sa.text("deleted_at IS NULL")
QUEUED = sa.text("status = 'queued'")
DISPATCHED = sa.text("dispatched_at IS NOT NULL")
QUEUE_ORDER = ["project_id", "device_class", "priority", "queued_at", "id"]
OLD_QUEUE_ORDER = ["device_class", "run_after", "priority", "queued_at"]


def upgrade() -> None:
    """Add columns, tables and indexes; nothing is moved."""
    if op.get_bind().dialect.name == "postgresql":
        # Whatever runs meanwhile locks its job first. Had this the other tables and waited for
        # that one, they would end as a deadlock.
        op.execute("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
    with op.batch_alter_table("projects", schema=None) as batch_op:
        batch_op.add_column(sa.Column("max_storage_bytes", sa.BigInteger(), nullable=True))
        batch_op.add_column(sa.Column("max_gpu_s_per_day", sa.Integer(), nullable=True))
        batch_op.add_column(
            sa.Column("retention_days", sa.Integer(), server_default="90", nullable=False)
        )
    with op.batch_alter_table("workers", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("drain_requested", sa.Boolean(), server_default=sa.false(), nullable=False)
        )
    with op.batch_alter_table("api_keys", schema=None) as batch_op:
        batch_op.add_column(sa.Column("replaced_by_id", sa.Uuid(), nullable=True))
    with op.batch_alter_table("job_attempts", schema=None) as batch_op:
        batch_op.add_column(sa.Column("device", sa.String(length=64), nullable=True))
    _allow_blob_states("stored", "deleting", "deleted")
    _create_audit_log()
    _create_project_secrets()
    _create_tallies()
    op.create_index(
        "ix_jobs_counts",
        "jobs",
        ["status", "device_class"],
        sqlite_where=LIVE,
        postgresql_where=LIVE,
    )
    op.drop_index("ix_jobs_claim", table_name="jobs")
    _create_partial_index("ix_jobs_queue", QUEUE_ORDER, QUEUED)
    _create_partial_index("ix_jobs_dispatched", ["project_id"], DISPATCHED)
    _create_partial_index("ix_jobs_summary", ["project_id", "status", "device_class"], LIVE)
    for table, indexes in INDEXES.items():
        for columns in indexes:
            op.create_index(_index_name(table, columns), table, list(columns), unique=False)


def downgrade() -> None:
    """Take all of it away again."""
    for table, indexes in INDEXES.items():
        for columns in indexes:
            op.drop_index(_index_name(table, columns), table_name=table)
    op.drop_index("ix_jobs_counts", table_name="jobs")
    op.drop_index("ix_jobs_summary", table_name="jobs")
    op.drop_index("ix_jobs_dispatched", table_name="jobs")
    op.drop_index("ix_jobs_queue", table_name="jobs")
    _create_partial_index("ix_jobs_claim", OLD_QUEUE_ORDER, QUEUED)
    op.drop_table("tallies")
    op.drop_table("project_secrets")
    op.drop_table("audit_log")
    # The old release calls bytes that are gone by the name it has for those that are going.
    op.execute("UPDATE blobs SET state = 'deleting' WHERE state = 'deleted'")
    _allow_blob_states("stored", "deleting")
    with op.batch_alter_table("job_attempts", schema=None) as batch_op:
        batch_op.drop_column("device")
    with op.batch_alter_table("api_keys", schema=None) as batch_op:
        batch_op.drop_column("replaced_by_id")
    with op.batch_alter_table("workers", schema=None) as batch_op:
        batch_op.drop_column("drain_requested")
    with op.batch_alter_table("projects", schema=None) as batch_op:
        batch_op.drop_column("retention_days")
        batch_op.drop_column("max_gpu_s_per_day")
        batch_op.drop_column("max_storage_bytes")


def _create_partial_index(name: str, columns: list[str], where: sa.TextClause) -> None:
    op.create_index(name, "jobs", columns, sqlite_where=where, postgresql_where=where)


def _index_name(table: str, columns: tuple[str, ...]) -> str:
    return f"ix_{table}_{'_'.join(columns)}"


def _allow_blob_states(*states: str) -> None:
    listed = ", ".join(f"'{state}'" for state in states)
    with op.batch_alter_table("blobs", schema=None) as batch_op:
        batch_op.drop_constraint(op.f("ck_blobs_state"), type_="check")
        batch_op.create_check_constraint(op.f("ck_blobs_state"), f"state IN ({listed})")


def _create_audit_log() -> None:
    op.create_table(
        "audit_log",
        sa.Column("actor", sa.String(length=100), nullable=False),
        sa.Column("key_id", sa.Uuid(), nullable=True),
        sa.Column("action", sa.String(length=64), nullable=False),
        sa.Column("target", sa.String(length=200), nullable=True),
        sa.Column("request_id", sa.String(length=128), nullable=True),
        sa.Column("details", JSON, nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_audit_log_project_id_projects")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_log")),
    )
    op.create_index(op.f("ix_audit_log_project_id_id"), "audit_log", ["project_id", "id"])


def _create_project_secrets() -> None:
    op.create_table(
        "project_secrets",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("ciphertext", sa.Text(), nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_project_secrets_project_id_projects")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_project_secrets")),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_project_secrets_project_id_name")),
    )


def _create_tallies() -> None:
    op.create_table(
        "tallies",
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("method", sa.String(length=64), nullable=False),
        sa.Column("outcome", sa.String(length=24), nullable=False),
        sa.Column("error", sa.String(length=64), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "method", "outcome", "error", name=op.f("pk_tallies")),
    )
