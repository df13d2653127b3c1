"""A stand-in for the service: answers requests from a script, in order, and keeps them."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import httpx

from debias_client import Client, RetryPolicy
from debias_client.transport import Clock

BASE_URL = "http://service.test"

Answer = httpx.Response | Exception | Callable[[httpx.Request], httpx.Response]


@dataclass
class FakeTime:
    """Time that passes only when somebody sleeps."""

    now_s: float = 1000.0
    slept_s: list[float] = field(default_factory=list)

    def sleep(self, duration_s: float) -> None:
        self.slept_s.append(duration_s)
        self.now_s += duration_s

    def clock(self) -> Clock:
        # A jitter of 1 makes each back-off as long as it may be.
        return Clock(sleep=self.sleep, monotonic=lambda: self.now_s, jitter=lambda: 1.0)


class ScriptedService:
    """Gives `answers` one after another; a request beyond the last one fails the test."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.answers = list(answers)
        self.time = FakeTime()
        self.requests: list[httpx.Request] = []

    def client(self, *, api_key: str | None = None, retry: RetryPolicy | None = None) -> Client:
        return Client(
            BASE_URL,
            api_key,
            retry=retry,
            transport=httpx.MockTransport(self.answer),
            clock=self.time.clock(),
        )

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        assert self.answers, f"unexpected request {request.method} {request.url}"
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, httpx.Response) else answer(request)


class BrokenBody(httpx.SyncByteStream):
    """A body whose line breaks after `chunks`."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        yield from self._chunks
        raise httpx.ReadError("the line broke")


class Body(httpx.SyncByteStream):
    """A body that comes in `chunks`."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        yield from self._chunks


def json_answer(body: object, status: int = 200, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, json=body, headers=named)


def page(*items: object, next_cursor: str | None = None) -> httpx.Response:
    body = {"data": items, "has_more": next_cursor is not None, "next_cursor": next_cursor}
    return json_answer(body)


def problem(status: int, code: str, *, retry_after: str | None = None) -> httpx.Response:
    headers = {"Content-Type": "application/problem+json", "X-Request-Id": "req-1"}
    if retry_after is not None:
        headers["Retry-After"] = retry_after
    body = {"type": f"/problems/{code}", "status": status, "code": code, "detail": "a reason"}
    return httpx.Response(status, content=json.dumps(body), headers=headers)


def event_stream(*chunks: bytes, breaks: bool = False) -> httpx.Response:
    stream: httpx.SyncByteStream = BrokenBody(chunks) if breaks else Body(chunks)
    return httpx.Response(200, headers={"Content-Type": "text/event-stream"}, stream=stream)


def event(seq: int, kind: str = "job.progress") -> dict[str, object]:
    return {"seq": seq, "type": kind, "level": "info", "data": {}}


def event_bytes(seq: int, kind: str = "job.progress") -> bytes:
    return f"id: {seq}\nevent: {kind}\ndata: {json.dumps(event(seq, kind))}\n\n".encode()


DONE = b"event: done\ndata: {}\n\n"
