"""What a worker's child holds for its attempts, built after the fork."""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, TypeVar
from uuid import UUID

import structlog

from app.catalog.registry import MethodRegistry
from app.db.repositories.blobs import blob_key_of
from app.db.repositories.execution import WorkerIdentity
from app.db.session import Database
from app.dispatch.timing import Timing
from app.domain.errors import Gone
from app.domain.ids import IdPrefix, format_id
from app.security.secrets import SecretBox
from app.storage.objects import ObjectStore
from workers.attempt.journal import UNREACHABLE, Journal
from workers.fetch import FetchSources

log = structlog.get_logger()
T = TypeVar("T")

EXIT_FENCED = 70
EXIT_STOPPED = 71
EXIT_OUTAGE = 75


def _exit_now(code: int) -> NoReturn:
    """End the process from any thread, past whatever the engine is stuck in."""
    os._exit(code)


@dataclass(frozen=True, slots=True)
class AttemptServices:
    """The world of an attempt. Tests put their own parts in."""

    database: Database
    store: ObjectStore
    registry: MethodRegistry
    timing: Timing
    worker: WorkerIdentity
    scratch_dir: Path
    scratch_min_free_bytes: int
    fetch: FetchSources
    device: str
    secrets: SecretBox | None = None
    capture_streams: bool = True
    is_orphaned: Callable[[], bool] = field(default=lambda: False)
    exit_now: Callable[[int], NoReturn] = _exit_now


def project_key(project_id: UUID) -> str:
    """Spell a project as storage keys do."""
    return format_id(IdPrefix.PROJECT, project_id)


def blob_reader(
    journal: Journal, store: ObjectStore, project_id: UUID
) -> Callable[[str, int, int], bytes]:
    """Read ranges of the project's blobs, for models that earlier jobs made."""

    def read(sha256: str, start: int, end: int) -> bytes:
        key = journal.patiently(
            lambda: journal.read(lambda session: blob_key_of(session, project_id, sha256))
        )
        if key is None:
            raise Gone("The files of this model version were deleted by retention.")
        return store.get_range(key, start, end)

    return read


def until_reachable(action: Callable[[], T], name: str, *, services: AttemptServices) -> T:
    """Repeat what comes before and between attempts while the database is away.

    A message that was received is consumed: given up, its job would wait to be sent again. And a
    child that gives up ends its worker, in an outage one after the other. Ends when the worker
    is gone.
    """
    pause = threading.Event()
    while True:
        try:
            return action()
        except UNREACHABLE as exc:
            log.warning("database_unreachable", action=name, reason=str(exc))
            if services.is_orphaned():
                raise
        pause.wait(services.timing.stop_poll_s)
