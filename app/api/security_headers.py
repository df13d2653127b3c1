"""What browsers are told about every answer, and which hosts an open service answers for."""

from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.domain.errors import BadRequest
from app.settings import Settings

CONTENT_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
HSTS = "max-age=31536000"
PRIVATE_PATHS = ("/v1/", "/downloads/")
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
# What a page of another origin may send and read, where the operator lists that origin.
CORS_METHODS = ("GET", "HEAD", "POST", "PATCH", "DELETE")
CORS_SENT = (
    "Authorization",
    "Content-Type",
    "Idempotency-Key",
    "If-Match",
    "If-None-Match",
    "If-Range",
    "Last-Event-ID",
    "Prefer",
    "Range",
    "X-Request-Id",
)
CORS_READ = (
    "Content-Disposition",
    "Content-Range",
    "ETag",
    "Idempotency-Replayed",
    "Link",
    "Location",
    "RateLimit",
    "RateLimit-Policy",
    "Repr-Digest",
    "Retry-After",
    "X-Request-Id",
)


class SecurityHeadersMiddleware:
    """Tell browsers to run, embed, guess and keep nothing, unless a route says otherwise."""

    def __init__(self, app: ASGIApp, *, https_only: bool) -> None:
        self._app = app
        self._defaults = ALWAYS | ({"Strict-Transport-Security": HSTS} if https_only else {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("Content-Security-Policy", CONTENT_POLICY)
                for name, value in self._defaults.items():
                    headers[name] = value
                if scope["path"].startswith(PRIVATE_PATHS):
                    # What has a tag may be asked for again; nobody else may keep it.
                    headers.setdefault(
                        "Cache-Control", "private, no-cache" if "etag" in headers else "no-store"
                    )
            await send(message)

        await self._app(scope, receive, send_guarded)


class OneHostMiddleware:
    """Refuse HTTP/1.1 without exactly one `Host` (RFC 9112): two are read differently by two."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "http" and scope["http_version"] == "1.1":
            count = len(Headers(scope=scope).getlist("host"))
            if count != 1:
                raise BadRequest(f"Send one Host header; the request has {count or 'none'}.")
        await self._app(scope, receive, send)


class LoopbackHostMiddleware:
    """Refuse requests that name another host, where nobody is asked for a key.

    A page of a stranger can let its own name point at 127.0.0.1 (DNS rebinding) and then read
    this service as its own origin; only the `Host` that the browser sends gives it away.
    """

    def __init__(self, app: ASGIApp, *, names: frozenset[str]) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "http":
            host = _host_name(Headers(scope=scope).get("host", ""))
            if host not in self._names:
                raise BadRequest(
                    "Without keys this service answers to localhost only: use that name, set "
                    "DEBIAS_PUBLIC_URL, or set DEBIAS_AUTH_MODE=keys."
                )
        await self._app(scope, receive, send)


def browser_middleware(settings: Settings) -> list[Middleware]:
    """Make what stands between browsers and the service, outermost first."""
    url = settings.public_url
    stack = [Middleware(SecurityHeadersMiddleware, https_only=bool(url and url.scheme == "https"))]
    if settings.cors_origins:
        cors = Middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=CORS_METHODS,
            allow_headers=CORS_SENT,
            expose_headers=CORS_READ,
        )
        stack.append(cors)
    return stack


def host_middleware(settings: Settings) -> list[Middleware]:
    """Make the checks of `Host`; with keys any name will do, as a stranger's page has no key."""
    stack = [Middleware(OneHostMiddleware)]
    if settings.auth_mode == "keys":
        return stack
    public = settings.public_url.host if settings.public_url else None
    names = LOOPBACK_NAMES | ({public} if public else frozenset())
    return [*stack, Middleware(LoopbackHostMiddleware, names=names)]


def _host_name(header: str) -> str:
    """Read the name from a `Host` header; "" where it is none."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""
