"""Run the long-lived processes: the embedded service, the API, a worker."""

import gc
import importlib
import ipaddress
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
import uvicorn
from fastapi import FastAPI

from app.cli.listening import listen
from app.db.schema import require_current
from app.db.session import Database
from app.domain.errors import Conflict, Unavailable
from app.services.embedded import EmbeddedService
from app.settings import Settings

log = structlog.get_logger()

GRACEFUL_S = 30
SECRET_KEY_LENGTH = 32
# Longer than the idle time of common proxies (60 s): a pool then meets no closed connection.
KEEP_ALIVE_S = 75
# The streams that one process carries at most, and half as many other requests.
MAX_CONNECTIONS = 1500
# Files that are no connections of clients: databases, Redis, the store, model files, logs.
OTHER_FILES = 200


def run_embedded(settings: Settings, host: str, port: int) -> int:
    """Serve from one folder until told to stop."""
    check_exposure(settings, host)
    sockets = listen(host, port)
    service = EmbeddedService(settings, show_admin_key=_print_admin_key)
    with _signals_kept(), service:
        print(f"Serving on http://{host}:{port} from {settings.home}", flush=True)
        return _serve(service.settings, sockets, maintenance=True)


def _print_admin_key(key: str) -> None:
    print(f"Admin key, shown this once: {key}", flush=True)


def run_api(settings: Settings, host: str, port: int, *, maintenance: bool) -> int:
    """Serve the API alone."""
    check_exposure(settings, host)
    if settings.broker_url is None:
        raise Unavailable(
            "No broker: set DEBIAS_BROKER_URL, or run `debias serve`, which brings its own."
        )
    sockets = listen(host, port)
    _require_schema(settings)
    with _signals_kept():
        return _serve(settings, sockets, maintenance=maintenance)


def run_worker(
    settings: Settings, classes: tuple[str, ...], *, device: str, guardian_fd: int | None
) -> int:
    """Run a worker until told to stop."""
    if settings.broker_url is None:
        raise Unavailable("No broker: set DEBIAS_BROKER_URL to the one that the API uses.")
    unknown = sorted(set(classes) - set(settings.device_classes))
    if unknown:
        raise Conflict(
            f"Unknown device class {', '.join(unknown)}: DEBIAS_DEVICE_CLASSES lists "
            f"{', '.join(settings.device_classes)}."
        )
    try:
        module = importlib.import_module("workers.celery_app")
    except ModuleNotFoundError as exc:
        raise Unavailable(
            f"The package {exc.name!r} is missing: install `evenhand[worker]` to run methods."
        ) from exc
    options = module.WorkerOptions(classes=classes, device=device, guardian_pipe=guardian_fd)
    status: int = module.run_worker(settings, options)
    return status


def check_exposure(settings: Settings, host: str) -> None:
    """Refuse to listen to the network without protection.

    Raises
    ------
    Conflict
        With the setting to change.
    """
    if is_loopback(host):
        return
    if settings.auth_mode == "disabled":
        raise Conflict(
            f"Refusing to listen on {host} without authentication: set DEBIAS_AUTH_MODE=keys, or "
            "listen on 127.0.0.1."
        )
    secret = settings.secret_key.get_secret_value() if settings.secret_key else ""
    if len(secret.split(",")[0]) < SECRET_KEY_LENGTH:
        raise Conflict(
            f"Refusing to listen on {host}: set DEBIAS_SECRET_KEY to at least "
            f"{SECRET_KEY_LENGTH} random characters."
        )


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _serve(settings: Settings, sockets: list[socket.socket], *, maintenance: bool) -> int:
    # Found by name, as uvicorn itself would: the command line knows no part of the API.
    application = importlib.import_module("app.main")
    app = application.create_app(settings, maintenance=maintenance)
    server = ApiServer(server_config(app, settings))
    server.run(sockets)
    return 0 if server.started else 1


# A request makes thousands of objects that are gone with it. By default (700, 10, 10) the collector
# looks at them several times while it lasts.
GC_THRESHOLDS = (10_000, 20, 50)
# A request asks the database a dozen times, and after each answer waits for its turn to run Python
# while another thread computes: by default 5 ms each time.
SWITCH_INTERVAL_S = 0.0005


class ApiServer(uvicorn.Server):
    """Serves with the modules, models and routes of the process out of the collector's way."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the application; then keep what it consists of from being searched for garbage."""
        await super().startup(sockets)
        log.info("serving", addresses=[taken.getsockname()[:2] for taken in sockets or ()])
        # It lives as long as the process, but each full collection went through all of it and
        # stopped every thread: 60 ms on an idle machine, 150 to 350 on a busy one; now 10 to 45.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        sys.setswitchinterval(SWITCH_INTERVAL_S)


def server_config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    """Configure the server; see `app.api.protocol` for the limits that uvicorn has not."""
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        http="app.api.protocol:BoundedHttpProtocol",
        ws="none",
        limit_concurrency=connection_limit(),
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACEFUL_S,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies) or None,
    )


def connection_limit() -> int:
    """Tell how many connections to take: beyond it they are answered 503, not left hanging.

    Without the margin, idle connections would use up the files that the database needs.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(1, min(MAX_CONNECTIONS, soft - OTHER_FILES))


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Let a stop signal end the server and nothing more.

    uvicorn raises the signal again after it has shut down; the default action would end the
    process before its worker and Redis are stopped.
    """
    numbers = (signal.SIGTERM, signal.SIGINT)
    previous = {number: signal.signal(number, _ignore) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _ignore(number: int, _frame: object) -> None:
    log.info("signal_received", number=number, pid=os.getpid())


def _require_schema(settings: Settings) -> None:
    database = Database(settings.resolved_database_url, pooled=False)
    try:
        require_current(database)
    finally:
        database.dispose()
