"""Log lines of a job, sent while they are written."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from uuid import UUID

import structlog
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from app.api.deps import Caller
from app.api.record_views import followed_line
from app.api.streams import BATCH, JobStream
from app.domain.errors import DebiasError
from app.domain.states import TERMINAL
from app.services.jobs import get_job
from app.services.logs import LogQuery, LogSlice, find_chunks, read_slice

NDJSON = "application/x-ndjson"

logger = structlog.get_logger()


class JobLogStream(JobStream):
    """Sends the lines that a query finds, then each new one, until the job is finished."""

    def __init__(self, caller: Caller, job_id: UUID, query: LogQuery, media_type: str) -> None:
        self._query = query
        self._as_json = media_type == NDJSON
        # No ping: a log has nothing like the comment of an event stream.
        super().__init__(
            caller, job_id, self._chunks(), media_type=media_type, ping_s=0, with_logs=True
        )

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            found = await self._next()
            if found is None:
                return
            finished, part = found
            if part.lines:
                yield b"".join(self._encoded(part))
            self._query = replace(self._query, positions=part.positions)
            if finished and not part.has_more:
                return
            if not await self.may_go_on(at_once=part.has_more):
                return

    def _encoded(self, part: LogSlice) -> Iterator[bytes]:
        positions = dict(self._query.positions)
        for line in part.lines:
            positions |= line.position
            yield followed_line(line, positions) if self._as_json else line.raw

    async def _next(self) -> tuple[bool, LogSlice] | None:
        """Read on; None when lines cannot be had at present, and the client should come back."""
        try:
            return await run_in_threadpool(self._read)
        except (SQLAlchemyError, DebiasError) as exc:
            logger.warning("stream_failed", error=str(exc))
            return None

    def _read(self) -> tuple[bool, LogSlice]:
        with self._caller.uow() as u:
            # The status first: what a finished job has logged is then surely among the chunks.
            finished = get_job(u, self._job_id).status in TERMINAL
            chunks = find_chunks(u, self._job_id, self._query)
        store = self._caller.context.store
        return finished, read_slice(store, chunks, self._query, limit=BATCH)
