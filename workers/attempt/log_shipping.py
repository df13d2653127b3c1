"""Bring the captured lines of an attempt into the store while it runs."""

import threading
from datetime import datetime

import structlog
from sqlalchemy.orm import Session

from app.db.repositories.execution import Claim
from app.db.repositories.outputs import insert_log_chunk
from app.db.tables import Job, JobLogChunk
from app.domain.errors import DebiasError
from app.domain.ids import IdPrefix, format_id
from app.storage.keys import log_key
from workers.attempt.journal import DatabaseUnreachable, Fenced, Journal
from workers.attempt.services import AttemptServices, project_key
from workers.runtime.logs import LogChunk, LogFiles

log = structlog.get_logger()

# Often enough to follow a job by its log; each chunk is one object in the store.
SHIP_PERIOD_S = 5.0


class LogShipper:
    """A thread of its own: a slow store must not hold up the heartbeat."""

    def __init__(
        self, services: AttemptServices, journal: Journal, claim: Claim, files: LogFiles
    ) -> None:
        self._services = services
        self._journal = journal
        self._claim = claim
        self._files = files
        self._waiting: list[LogChunk] = []
        self._shipping = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log-shipper", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and ship what is left. Lost lines never change a job's outcome."""
        self.end()
        self.ship(final=True)

    def end(self) -> None:
        """End the thread."""
        self._ended.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def ship(self, *, final: bool = False) -> None:
        """Store the lines written since the last call."""
        with self._shipping:
            try:
                self._waiting += self._files.take(final=final)
                while self._waiting:
                    self._store(self._waiting[0])
                    self._waiting.pop(0)
            except (DebiasError, DatabaseUnreachable, OSError) as exc:
                log.warning("log_chunk_delayed", reason=str(exc))
            except Fenced:
                self._waiting.clear()
            except Exception:  # lost lines must not become the job's outcome
                log.exception("log_chunk_lost")
                del self._waiting[:1]

    def _run(self) -> None:
        while not self._ended.wait(SHIP_PERIOD_S):
            self.ship()

    def _store(self, chunk: LogChunk) -> None:
        claim = self._claim
        key = log_key(
            project_key(claim.project_id),
            format_id(IdPrefix.JOB, claim.job_id),
            format_id(IdPrefix.ATTEMPT, claim.attempt_id),
            chunk.stream,
            chunk.number,
        )
        self._services.store.put_bytes(key, chunk.data)

        def insert(session: Session, job: Job, _now: datetime) -> None:
            insert_log_chunk(
                session,
                JobLogChunk(
                    job_id=job.id,
                    attempt=claim.attempt,
                    stream=chunk.stream,
                    n=chunk.number,
                    first_line=chunk.first_line,
                    line_count=chunk.line_count,
                    byte_size=len(chunk.data),
                    storage_key=key,
                    first_at=chunk.first_at,
                    last_at=chunk.last_at,
                ),
            )

        self._journal.write(insert)
