"""Bring the captured lines of an attempt into the store while it runs."""

import threading
from datetime import datetime
from queue import Empty, SimpleQueue

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
    """A thread of its own, which alone waits for the store: it may be slow, or never answer."""

    def __init__(
        self, services: AttemptServices, journal: Journal, claim: Claim, files: LogFiles
    ) -> None:
        self._services = services
        self._journal = journal
        self._claim = claim
        self._files = files
        self._waiting: list[LogChunk] = []
        self._asked: SimpleQueue[threading.Event] = SimpleQueue()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log-shipper", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def ship_rest(self, patience_s: float) -> None:
        """Have every line so far stored, and wait for that, but for `patience_s` at most.

        Lost lines never change a job's outcome.
        """
        shipped = threading.Event()
        self._asked.put(shipped)
        if self._thread.is_alive():
            shipped.wait(patience_s)

    def end(self) -> None:
        """End the thread; one that the store holds up is left behind."""
        self._ended.set()
        self.ship_rest(0)  # wakes it

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                shipped = self._asked.get(timeout=SHIP_PERIOD_S)
            except Empty:
                self._ship()
            else:
                self._ship(final=True)
                shipped.set()

    def _ship(self, *, final: bool = False) -> None:
        """Store the lines written since the last call."""
        if self._journal.closed:  # the outcome has not waited; the files may be gone
            return
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
