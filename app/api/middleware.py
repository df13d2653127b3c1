"""Pure ASGI middlewares: request id, metrics, faults, HEAD, and strict JSON bodies."""

import re
import time
import uuid

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.body import read_json_body
from app.api.errors import internal_error, problem_response
from app.domain.errors import DebiasError
from app.metrics import HttpMetrics

REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
WITH_BODY = frozenset({"POST", "PUT", "PATCH", "DELETE"})
NO_ROUTE = "unmatched"

logger = structlog.get_logger()


class RequestContextMiddleware:
    """Give each request an id, take over its trace, log and count its answer."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        state["request_id"] = request_id = _request_id(scope)
        state["traceparent"] = _traceparent(scope)
        started = time.monotonic()
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = request_id
                headers.setdefault("X-Content-Type-Options", "nosniff")
                headers.update(state.get("rate_limit", {}))
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            await self._app(scope, receive, send_with_id)
            route = getattr(scope.get("route"), "path", NO_ROUTE)
            duration = time.monotonic() - started
            self._metrics.observe(scope["method"], route, status, duration)
            logger.info(
                "request_answered",
                method=scope["method"],
                route=route,
                status=status,
                duration_s=round(duration, 4),
            )


class FaultMiddleware:
    """Turn what the middlewares below and the routes let through into a problem document."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        started = False

        async def send_noting_start(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, send_noting_start)
        except ClientDisconnect:
            logger.info("client_left", path=scope["path"])
        except Exception as exc:  # the process edge: a defect must not end the connection silently
            if started or scope["type"] != "http":
                raise
            response = (
                problem_response(scope, exc)
                if isinstance(exc, DebiasError)
                else internal_error(scope, exc)
            )
            await response(scope, receive, send)


class HeadMiddleware:
    """Answer HEAD on every GET route: same status and headers, no body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        inner = {**scope, "method": "GET"}
        # A route with a costly body looks here, so as not to produce what nobody reads.
        inner.setdefault("state", {})["head"] = True

        async def send_without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await self._app(inner, receive, send_without_body)
        scope["route"] = inner.get("route")


class JsonBodyMiddleware:
    """Read request bodies up to a limit and refuse JSON that two parsers could read differently.

    The bytes are counted as they come, whatever `Content-Length` says.
    """

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http" or scope["method"] not in WITH_BODY:
            await self._app(scope, receive, send)
            return
        body, value = await read_json_body(Headers(scope=scope), receive, self._max_bytes)
        scope.setdefault("state", {})["json_body"] = value
        delivered = False

        async def receive_again() -> Message:
            nonlocal delivered
            if delivered:
                return await receive()
            delivered = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, receive_again, send)


def _request_id(scope: Scope) -> str:
    given = Headers(scope=scope).get("x-request-id", "")
    return given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def _traceparent(scope: Scope) -> str | None:
    given = Headers(scope=scope).get("traceparent", "")
    return given if TRACEPARENT.fullmatch(given) else None
