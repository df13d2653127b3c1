"""A response that stays open while its job goes on, without a thread or a connection."""

from collections.abc import AsyncIterator
from uuid import UUID

import anyio
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Receive, Scope, Send

from app.api.deps import Caller
from app.api.watcher import Watch

BATCH = 256
MAX_LIFE_S = 3600
SLOW_CLIENT_S = 30
# How soon an idle stream sees that the process ends, and how long it then has for a clean close.
CLOSING_POLL_S = 1.0
CLOSING_GRACE_S = 4.0
LINE_END = "\n"
STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class JobStream(EventSourceResponse):
    """Watches a job for as long as a client listens.

    At most one batch of 256 items is held for a client; the next one is read when it has taken
    them. A client that takes nothing for 30 s is cut off and comes back with its last position.
    """

    def __init__(
        self,
        caller: Caller,
        job_id: UUID,
        content: AsyncIterator[bytes | ServerSentEvent],
        *,
        media_type: str,
        ping_s: float,
        with_logs: bool = False,
    ) -> None:
        self._caller = caller
        self._clock = caller.context.database.clock
        self._job_id = job_id
        self._with_logs = with_logs
        self._watch: Watch | None = None
        self._until = self._clock.monotonic() + MAX_LIFE_S
        self._closing = anyio.Event()
        super().__init__(
            content,
            headers=STREAM_HEADERS,
            media_type=media_type,
            ping=ping_s,
            send_timeout=SLOW_CLIENT_S,
            sep=LINE_END,
            shutdown_event=self._closing,
            shutdown_grace_period=CLOSING_GRACE_S,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Watch the job for as long as the stream is open."""
        runtime = self._caller.runtime
        principal = self._caller.principal
        with (
            runtime.watcher.watch(self._job_id, principal, with_logs=self._with_logs) as watch,
            runtime.metrics.streams.track_inprogress(),
        ):
            self._watch = watch
            await super().__call__(scope, receive, send)

    async def may_go_on(self, *, at_once: bool = False) -> bool:
        """Wait for a change, unless there is more to send `at_once`.

        False when the stream has lived long enough, its key no longer works, or the process ends.
        """
        assert self._watch is not None  # noqa: S101 - set before anything is asked for
        while not self._closing.is_set() and not self._watch.key_is_dead:
            left = self._until - self._clock.monotonic()
            if left <= 0:
                return False
            if at_once or await self._watch.changed(min(left, CLOSING_POLL_S)):
                return not self._watch.key_is_dead
        return False
