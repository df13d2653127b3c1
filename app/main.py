"""Make the application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI
from prometheus_client import CollectorRegistry
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware

from app.api.errors import install_error_handlers, refuse_shadowed
from app.api.middleware import (
    FaultMiddleware,
    HeadMiddleware,
    JsonBodyMiddleware,
    RequestContextMiddleware,
)
from app.api.openapi import DESCRIPTION, TITLE, install_openapi
from app.api.query import refuse_repeated
from app.api.reference import install_reference
from app.api.routes import ROUTERS
from app.api.security_headers import browser_middleware, host_middleware
from app.api.startup import open_runtime
from app.api.state import State
from app.metrics import HttpMetrics
from app.settings import Settings


def create_app(settings: Settings, *, maintenance: bool = True) -> FastAPI:
    """Make the application; nothing is opened before its lifespan begins.

    With `maintenance` the relay, dispatcher and reaper run in threads of this process.
    """
    registry = CollectorRegistry()
    metrics = HttpMetrics(registry)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[State]:
        opening = open_runtime(settings, registry, metrics, maintenance=maintenance)
        runtime = await run_in_threadpool(opening.__enter__)
        try:
            yield State(runtime=runtime)
        finally:
            await run_in_threadpool(opening.__exit__, None, None, None)

    app = FastAPI(
        title=TITLE,
        description=DESCRIPTION,
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        middleware=[
            Middleware(RequestContextMiddleware, metrics=metrics),
            *browser_middleware(settings),
            Middleware(FaultMiddleware),
            *host_middleware(settings),
            Middleware(HeadMiddleware),
            Middleware(JsonBodyMiddleware, max_bytes=settings.max_body_bytes),
        ],
    )
    app.state.registry = registry
    for router in ROUTERS:
        app.include_router(
            router, dependencies=[Depends(refuse_shadowed), Depends(refuse_repeated)]
        )
    install_error_handlers(app)
    install_openapi(app)
    install_reference(app)
    return app
