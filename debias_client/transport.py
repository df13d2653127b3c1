"""One place that sends requests: problem documents become errors, transient ones are retried."""

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from typing import cast

import httpx

from debias_client.errors import ApiError, ConnectionFailed, FieldError, UnexpectedAnswer
from debias_client.retries import Failure, RetryPolicy, parse_retry_after
from debias_client.schemas import JsonValue

# The connection failed or broke. What is left out (a bad URL, say) no repetition will mend.
LOST_CONNECTION = (httpx.NetworkError, httpx.RemoteProtocolError, httpx.TimeoutException)

QueryParams = Mapping[str, str | int | Sequence[str]]


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Clock:
    """Time and chance as the client uses them; tests put their own in."""

    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = _utc_now
    jitter: Callable[[], float] = random.random


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `repeatable` says that sending it twice does what sending it once does."""

    method: str
    path: str
    _: KW_ONLY
    repeatable: bool
    params: QueryParams = field(default_factory=dict)
    body: Mapping[str, object] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    extra_timeout_s: float = 0.0


class Transport:
    """Sends calls over one httpx client; safe to share between threads."""

    def __init__(
        self, http: httpx.Client, policy: RetryPolicy, *, timeout_s: float, clock: Clock
    ) -> None:
        self._http = http
        self._policy = policy
        self._timeout_s = timeout_s
        self.clock = clock

    def get(self, path: str, params: QueryParams | None = None) -> JsonValue:
        """Read a JSON resource."""
        return self.send(Call("GET", path, repeatable=True, params=params or {}))

    def send(self, call: Call) -> JsonValue:
        """Send `call`, again if it may be repeated and failed in passing; give its JSON body."""
        attempt = 1
        while True:
            try:
                return self._send_once(call)
            except (ApiError, ConnectionFailed) as failure:
                if not call.repeatable or not self.pause_before_retry(failure, attempt):
                    raise
            attempt += 1

    def pause_before_retry(self, failure: Failure, attempt: int) -> bool:
        """Sleep until another attempt makes sense, or return False when none does."""
        delay_s = self._policy.delay_s(failure, attempt, jitter=self.clock.jitter)
        if delay_s is None:
            return False
        self.clock.sleep(delay_s)
        return True

    @contextmanager
    def stream(
        self, path: str, *, headers: Mapping[str, str], read_timeout_s: float | None = None
    ) -> Iterator[httpx.Response]:
        """Open one GET whose body is read piece by piece; a broken line is `ConnectionFailed`."""
        timeout = httpx.Timeout(self._timeout_s, read=read_timeout_s or self._timeout_s)
        try:
            with self._http.stream("GET", path, headers=headers, timeout=timeout) as response:
                if not response.is_success:
                    response.read()
                    raise self._problem(response)
                yield response
        except LOST_CONNECTION as exc:
            raise ConnectionFailed(f"GET {path}: {exc or type(exc).__name__}") from exc

    def _send_once(self, call: Call) -> JsonValue:
        read_timeout_s = self._timeout_s + call.extra_timeout_s
        try:
            response = self._http.request(
                call.method,
                call.path,
                params=call.params,
                json=call.body,
                headers=call.headers,
                timeout=httpx.Timeout(self._timeout_s, read=read_timeout_s),
            )
        except LOST_CONNECTION as exc:
            message = f"{call.method} {call.path}: {exc or type(exc).__name__}"
            raise ConnectionFailed(message) from exc
        if not response.is_success:
            raise self._problem(response)
        return _read_json(response)

    def _problem(self, response: httpx.Response) -> ApiError:
        try:
            body = response.json()
        except ValueError:
            body = None
        problem = body if isinstance(body, dict) else {}
        retry_after = response.headers.get("Retry-After")
        return ApiError(
            str(problem.get("code", "http_error")),
            response.status_code,
            detail=str(problem.get("detail") or problem.get("title") or response.reason_phrase),
            errors=_read_field_errors(problem.get("errors")),
            request_id=problem.get("request_id") or response.headers.get("X-Request-Id"),
            retry_after_s=parse_retry_after(retry_after, now=self.clock.now),
        )


def _read_json(response: httpx.Response) -> JsonValue:
    try:
        return cast("JsonValue", response.json())
    except (json.JSONDecodeError, UnicodeDecodeError) as exc:
        raise UnexpectedAnswer(f"{response.request.url} did not answer with JSON") from exc


def _read_field_errors(items: object) -> tuple[FieldError, ...]:
    if not isinstance(items, list):
        return ()
    return tuple(
        FieldError(
            code=str(item.get("code", "")),
            message=str(item.get("message", "")),
            pointer=item.get("pointer"),
            parameter=item.get("parameter"),
        )
        for item in items
        if isinstance(item, dict)
    )
