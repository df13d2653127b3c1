"""The HTTP protocol of the server, with the limits that uvicorn and httptools leave out."""

import asyncio
from typing import Any

from starlette.types import Receive, Scope, Send
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import service_unavailable
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.api.errors import problem_response
from app.domain.errors import Unavailable

# As of uvicorn 0.54: httptools collects headers of any size, nothing ends a connection that sends
# a request byte by byte, and an answer waits for ever for a client that does not read it.
MAX_HEAD_BYTES = 64 * 1024
# A request, from the connection or its first byte to the last one of its body. The body's own
# deadline is shorter, so that a slow body is still answered.
RECEIVE_DEADLINE_S = 45.0
# A client that takes less than some 50 KiB in this time is cut off; downloads can be resumed.
STALLED_READER_S = 60.0
TOO_LARGE = "Request headers too large."


class BoundedHttpProtocol(HttpToolsProtocol):
    """Ends a connection whose client sends or reads too slowly, or whose headers are too large."""

    _raw_head_bytes = 0
    _header_bytes = 0
    _head_is_open = True
    _receiving: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadlines."""
        _cancel(self._receiving)
        _cancel(self._stalled)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came; a head that goes on after the limit ends the connection."""
        was_open = self._head_is_open
        super().data_received(data)
        if was_open and self._head_is_open and not self.transport.is_closing():
            self._raw_head_bytes += len(data)
            if self._raw_head_bytes > MAX_HEAD_BYTES:
                self.send_400_response(TOO_LARGE)

    def on_message_begin(self) -> None:
        """Begin the deadline of a request."""
        super().on_message_begin()
        self._raw_head_bytes = self._header_bytes = 0
        self._head_is_open = True
        self._expect_request()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; raising makes the parser refuse the request."""
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > MAX_HEAD_BYTES:
            raise ValueError(TOO_LARGE)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the request."""
        self._head_is_open = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End the deadline: the request is here."""
        _cancel(self._receiving)
        super().on_message_complete()

    def pause_writing(self) -> None:
        """Begin to wait for a client that does not read."""
        super().pause_writing()
        self._stalled = self.loop.call_later(STALLED_READER_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop waiting: the client reads."""
        _cancel(self._stalled)
        super().resume_writing()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        busy: Any = answer_busy
        super()._start_asgi_task(cycle, busy if app is service_unavailable else app)

    def _expect_request(self) -> None:
        _cancel(self._receiving)
        self._receiving = self.loop.call_later(RECEIVE_DEADLINE_S, self._end_slow_request)

    def _end_slow_request(self) -> None:
        if self.flow.read_paused:  # then it is the service that does not read
            self._expect_request()
        else:
            self.transport.close()


async def answer_busy(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer in place of the application where there are too many connections."""
    error = Unavailable(
        "The service has as many connections as it takes. Try again.",
        headers={"Connection": "close"},
    )
    await problem_response(scope, error)(scope, receive, send)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
