"""What the watcher asks: how far each of many jobs has come."""

from collections.abc import Sequence
from uuid import UUID

from app.db.repositories.operations import last_event_numbers
from app.db.session import Database


def last_numbers(database: Database, job_ids: Sequence[UUID]) -> dict[UUID, int]:
    """Return the number of the last event of each job, in one query."""
    with database.read() as session:
        return last_event_numbers(session, job_ids)
