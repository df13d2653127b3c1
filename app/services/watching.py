"""What the watcher asks: how far each of many jobs has come, and which keys still live."""

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from app.db.repositories.keys import live_keys
from app.db.repositories.operations import count_log_chunks, last_event_numbers
from app.db.session import Database


@dataclass(frozen=True, slots=True)
class Headway:
    """How far jobs have come: the number of their last event, and of their log chunks."""

    events: dict[UUID, int]
    logs: dict[UUID, int]


def read_headway(
    database: Database, job_ids: Collection[UUID], logged_ids: Collection[UUID]
) -> Headway:
    """Ask for the events of some jobs and the logs of others, in one query each."""
    with database.read() as session:
        return Headway(
            events=last_event_numbers(session, list(job_ids)) if job_ids else {},
            logs=count_log_chunks(session, list(logged_ids)) if logged_ids else {},
        )


def read_live_keys(database: Database, key_ids: Collection[UUID]) -> set[UUID]:
    """Ask which of some keys are neither revoked nor expired, in one query."""
    with database.read() as session:
        return live_keys(session, key_ids, now=database.now(session))
