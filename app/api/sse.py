"""Events of a job as a server-sent event stream."""

import json
from collections.abc import AsyncIterator
from uuid import UUID

import structlog
from fastapi import Request
from sqlalchemy.exc import SQLAlchemyError
from sse_starlette import ServerSentEvent
from starlette.concurrency import run_in_threadpool

from app.api.deps import Caller
from app.api.record_views import event_body
from app.api.streams import BATCH, LINE_END, JobStream
from app.domain.errors import BadRequest
from app.services.records import EventBatch, read_events

SSE_MEDIA_TYPE = "text/event-stream"
RECONNECT_MS = 3000
PING_S = 15

logger = structlog.get_logger()


class JobEventStream(JobStream):
    """Sends the events of a job after a number, then each new one, until the job is finished."""

    def __init__(self, caller: Caller, job_id: UUID, after: int) -> None:
        self._after = after
        super().__init__(caller, job_id, self._events(), media_type=SSE_MEDIA_TYPE, ping_s=PING_S)

    async def _events(self) -> AsyncIterator[ServerSentEvent]:
        position = self._after
        yield ServerSentEvent(comment="connected", retry=RECONNECT_MS, sep=LINE_END)
        while True:
            batch = await self._next(position)
            if batch is None:
                return
            for event in batch.events:
                body = event_body(event)
                position = body.seq
                yield ServerSentEvent(
                    id=str(body.seq), event=body.type, data=body.model_dump_json(), sep=LINE_END
                )
            # Not by the number of the last event: retention may have deleted it.
            if batch.finished and len(batch.events) < BATCH:
                done = json.dumps({"status": batch.status})
                yield ServerSentEvent(event="done", data=done, sep=LINE_END)
                return
            if not await self.may_go_on(at_once=len(batch.events) == BATCH):
                return

    async def _next(self, after: int) -> EventBatch | None:
        """Read on; None when the database is gone, and the client should come back later."""
        try:
            return await run_in_threadpool(self._read, after)
        except SQLAlchemyError as exc:
            logger.warning("stream_failed", error=str(exc))
            return None

    def _read(self, after: int) -> EventBatch:
        with self._caller.uow() as u:
            return read_events(u, self._job_id, after=after, limit=BATCH)


def last_event_id(request: Request, after: int) -> int:
    """Where to go on: `Last-Event-ID` of a reconnecting client, else `after`."""
    header = request.headers.get("last-event-id")
    if header is None:
        return after
    if not header.isdecimal() or len(header) > 10:
        raise BadRequest("Last-Event-ID must be the number of an event.")
    return int(header)
