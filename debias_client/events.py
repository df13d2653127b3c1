"""Follow the events of a job over SSE, and over long polls where no stream gets through."""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import cast

import httpx

from debias_client.errors import ApiError, ConnectionFailed, UnexpectedAnswer, WaitTimeout
from debias_client.pages import as_object
from debias_client.retries import is_transient
from debias_client.schemas import TERMINAL_STATUSES, Job, JobEvent
from debias_client.sse import EventStreamParser, Message
from debias_client.transport import Transport

# The service sends a comment every 15 s: three missing ones mean a dead line.
STREAM_READ_TIMEOUT_S = 45.0
# What the service asks for with `retry:`; used until it does.
DEFAULT_RECONNECT_S = 3.0
# After as many connections in a row that bring no byte, a proxy is holding the stream back.
MAX_SILENT_CONNECTIONS = 3
# Short, because progress events do not end a wait: only a change of status does.
POLL_WAIT_S = 5
# The most the service gives at once.
PAGE_SIZE = 100

ReadJob = Callable[[float], Job]


class JobEventStream:
    """The events of one job from `after` on, in order and each once, until the job has ended.

    `read_job` waits up to the given seconds for a change of status and gives the job. With a
    `deadline` on the monotonic clock, `WaitTimeout` ends the iteration there.
    """

    def __init__(
        self,
        transport: Transport,
        job_id: str,
        *,
        events_path: str,
        read_job: ReadJob,
        after: int = 0,
        deadline: float | None = None,
    ) -> None:
        self._transport = transport
        self._job_id = job_id
        self._path = events_path
        self._read_job = read_job
        self._deadline = deadline
        self._silent_connections = 0
        self._reconnect_s = DEFAULT_RECONNECT_S
        self._ended = False
        self.last_seq = after

    def __iter__(self) -> Iterator[JobEvent]:
        yield from self._read_connection()
        while not self._ended and self._silent_connections < MAX_SILENT_CONNECTIONS:
            self._transport.clock.sleep(self._remaining_s(self._reconnect_s))
            yield from self._read_connection()
        while not self._ended:
            yield from self._poll()

    def _read_connection(self) -> Iterator[JobEvent]:
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if self.last_seq:
            headers["Last-Event-ID"] = str(self.last_seq)
        read_timeout_s = self._remaining_s(STREAM_READ_TIMEOUT_S)
        self._silent_connections += 1
        try:
            with self._transport.stream(
                self._path, headers=headers, read_timeout_s=read_timeout_s
            ) as response:
                yield from self._read_stream(response)
        except ConnectionFailed:
            return
        except ApiError as error:
            if error.status != httpx.codes.NOT_ACCEPTABLE and not is_transient(error):
                raise
            # No stream to be had now (their number is limited): polls heed `Retry-After`.
            self._silent_connections = MAX_SILENT_CONNECTIONS

    def _read_stream(self, response: httpx.Response) -> Iterator[JobEvent]:
        if not response.headers.get("Content-Type", "").startswith("text/event-stream"):
            self._silent_connections = MAX_SILENT_CONNECTIONS
            return
        parser = EventStreamParser()
        for chunk in response.iter_bytes():
            self._silent_connections = 0
            yield from self._new_events(map(_read_event, self._messages(parser.feed(chunk))))
            if self._ended:
                return
            self._reconnect_s = parser.reconnect_s or self._reconnect_s
            self._remaining_s(0)

    def _messages(self, messages: Iterable[Message]) -> Iterator[Message]:
        for message in messages:
            if message.event == "done":
                self._ended = True
                return
            yield message

    def _poll(self) -> Iterator[JobEvent]:
        # The job first: what it ended with is then surely among the events read after it.
        job = self._read_job(self._remaining_s(POLL_WAIT_S))
        seen = -1
        while seen < self.last_seq:
            seen = self.last_seq
            yield from self._new_events(self._read_page())
        self._ended = job["status"] in TERMINAL_STATUSES

    def _read_page(self) -> list[JobEvent]:
        query = {"after": self.last_seq, "limit": PAGE_SIZE}
        page = as_object(self._transport.get(self._path, query), self._path)
        items = page.get("data")
        if not isinstance(items, list):
            raise UnexpectedAnswer(f"{self._path} did not answer with a page")
        return [_as_event(item, "page") for item in items]

    def _new_events(self, events: Iterable[JobEvent]) -> Iterator[JobEvent]:
        for event in events:
            if event["seq"] > self.last_seq:
                self.last_seq = event["seq"]
                yield event

    def _remaining_s(self, at_most_s: float) -> float:
        if self._deadline is None:
            return at_most_s
        left_s = self._deadline - self._transport.clock.monotonic()
        if left_s <= 0:
            raise WaitTimeout(self._job_id)
        return min(at_most_s, left_s)


def _read_event(message: Message) -> JobEvent:
    try:
        return _as_event(json.loads(message.data), message.event)
    except json.JSONDecodeError as exc:
        raise UnexpectedAnswer(f"event {message.event!r} holds no JSON") from exc


def _as_event(value: object, where: str) -> JobEvent:
    if not isinstance(value, dict) or not isinstance(value.get("seq"), int):
        raise UnexpectedAnswer(f"an event of {where!r} has no sequence number")
    return cast("JobEvent", value)
