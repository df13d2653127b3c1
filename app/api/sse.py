"""Events of a job as a server-sent event stream."""

import json
from collections.abc import AsyncIterator
from uuid import UUID

import anyio
import structlog
from fastapi import Request
from sqlalchemy.exc import SQLAlchemyError
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from app.api.deps import Caller
from app.api.record_views import event_body
from app.api.watcher import Watch
from app.domain.errors import BadRequest
from app.services.records import EventBatch, read_events

SSE_MEDIA_TYPE = "text/event-stream"
RECONNECT_MS = 3000
PING_S = 15
MAX_LIFE_S = 3600
BATCH = 256
SLOW_CLIENT_S = 30
# How soon an idle stream sees that the process ends, and how long it then has for a clean close.
CLOSING_POLL_S = 1.0
CLOSING_GRACE_S = 4.0
LINE_END = "\n"
STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

logger = structlog.get_logger()


class JobEventStream(EventSourceResponse):
    """Sends the events of a job after a number, then each new one, until the job is finished.

    At most one batch of 256 events is held for a client; the next one is read when it has taken
    them. A client that takes nothing for 30 s is cut off and comes back with its last id.
    """

    def __init__(self, caller: Caller, job_id: UUID, after: int) -> None:
        self._caller = caller
        self._clock = caller.context.database.clock
        self._job_id = job_id
        self._after = after
        self._watch: Watch | None = None
        self._closing = anyio.Event()
        super().__init__(
            self._events(),
            headers=STREAM_HEADERS,
            ping=PING_S,
            send_timeout=SLOW_CLIENT_S,
            sep=LINE_END,
            shutdown_event=self._closing,
            shutdown_grace_period=CLOSING_GRACE_S,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Watch the job for as long as the stream is open."""
        runtime = self._caller.runtime
        with (
            runtime.watcher.watch(self._job_id, stream_owner(self._caller)) as watch,
            runtime.metrics.streams.track_inprogress(),
        ):
            self._watch = watch
            await super().__call__(scope, receive, send)

    async def _events(self) -> AsyncIterator[ServerSentEvent]:
        until = self._clock.monotonic() + MAX_LIFE_S
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
            if batch.finished and position >= batch.last_seq:
                done = json.dumps({"status": batch.status})
                yield ServerSentEvent(event="done", data=done, sep=LINE_END)
                return
            if len(batch.events) < BATCH and not await self._may_go_on(until):
                return

    async def _may_go_on(self, until: float) -> bool:
        """Wait for a change; False when the stream has lived long enough or the process ends."""
        assert self._watch is not None  # noqa: S101 - set before the first event is asked for
        while not self._closing.is_set():
            left = until - self._clock.monotonic()
            if left <= 0:
                return False
            if await self._watch.changed(min(left, CLOSING_POLL_S)):
                return True
        return False

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


def stream_owner(caller: Caller) -> UUID:
    """Who the limit of open streams counts for: the key, or the project without one."""
    return caller.principal.key_id or caller.principal.project_id


def last_event_id(request: Request, after: int) -> int:
    """Where to go on: `Last-Event-ID` of a reconnecting client, else `after`."""
    header = request.headers.get("last-event-id")
    if header is None:
        return after
    if not header.isdecimal() or len(header) > 10:
        raise BadRequest("Last-Event-ID must be the number of an event.")
    return int(header)
