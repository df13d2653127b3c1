"""Indexes that answer the counts of a queue by themselves.

SQLite reads the row of every entry of a partial index that it counts: 41 ms for each new job of a
project that has 5,000 waiting, 28 ms for each round of the dispatcher.

Revision ID: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

LIVE = sa.text("deleted_at IS NULL")
QUEUED = sa.text("status = 'queued'")
ORDER = ["priority", "queued_at", "id"]
LINE = ["project_id", "status", "device_class", *ORDER, "deleted_at"]
COUNTS = ["status", "device_class", "queued_at", "dispatched_at", "deleted_at"]


def upgrade() -> None:
    """Build two indexes over all jobs in place of three over some."""
    for name in ("ix_jobs_summary", "ix_jobs_counts", "ix_jobs_queue"):
        op.drop_index(name, table_name="jobs")
    op.create_index("ix_jobs_line", "jobs", LINE)
    op.create_index("ix_jobs_counts", "jobs", COUNTS)


def downgrade() -> None:
    """Build the old ones again."""
    for name in ("ix_jobs_line", "ix_jobs_counts"):
        op.drop_index(name, table_name="jobs")
    _create_partial_index("ix_jobs_queue", ["project_id", "device_class", *ORDER], QUEUED)
    _create_partial_index("ix_jobs_counts", ["status", "device_class"], LIVE)
    _create_partial_index("ix_jobs_summary", ["project_id", "status", "device_class"], LIVE)


def _create_partial_index(name: str, columns: list[str], where: sa.TextClause) -> None:
    op.create_index(name, "jobs", columns, sqlite_where=where, postgresql_where=where)
