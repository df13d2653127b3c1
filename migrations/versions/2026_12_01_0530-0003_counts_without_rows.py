"""Indexes that answer the counts of a queue by themselves.

SQLite reads the row of every entry of a partial index that it counts: 41 ms for each new job of a
project that has 5,000 waiting.

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
LINE = ["project_id", "status", "device_class", "priority", "deleted_at"]
COUNTS = ["status", "device_class", "deleted_at"]


def upgrade() -> None:
    """Build two indexes over all jobs in place of two over the live ones."""
    op.drop_index("ix_jobs_summary", table_name="jobs")
    op.drop_index("ix_jobs_counts", table_name="jobs")
    op.create_index("ix_jobs_line", "jobs", LINE)
    op.create_index("ix_jobs_counts", "jobs", COUNTS)


def downgrade() -> None:
    """Build the old ones again."""
    op.drop_index("ix_jobs_line", table_name="jobs")
    op.drop_index("ix_jobs_counts", table_name="jobs")
    _create_for_live_jobs("ix_jobs_counts", ["status", "device_class"])
    _create_for_live_jobs("ix_jobs_summary", ["project_id", "status", "device_class"])


def _create_for_live_jobs(name: str, columns: list[str]) -> None:
    op.create_index(name, "jobs", columns, sqlite_where=LIVE, postgresql_where=LIVE)
