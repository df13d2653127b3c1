"""Alembic environment: the connection comes from the caller (`app.db.schema`)."""

import sqlalchemy as sa
from alembic import context

from app.db import tables  # noqa: F401  (fills the metadata)
from app.db.base import Base


def run() -> None:
    """Run the asked-for revisions on the caller's connection."""
    connection: sa.Connection = context.config.attributes["connection"]
    is_sqlite = connection.dialect.name == "sqlite"
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_as_batch=is_sqlite,
        compare_type=True,
        compare_server_default=True,
    )
    if not is_sqlite:
        connection.execute(sa.text("SET lock_timeout = '5s'"))
    with context.begin_transaction():
        context.run_migrations()


run()
