"""Whether the process lives, whether it can serve, and what it is."""

import platform
from importlib.metadata import version

from fastapi import APIRouter, Depends, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import JSONResponse, Response

from app.api.negotiation import Represents, accepts_json
from app.api.problems import media, public_problems
from app.api.state import Runtime
from app.db.schema import head_revision
from app.domain.errors import NotFound, Unavailable
from app.schemas.system import LivenessBody, ReadinessBody, VersionBody

router = APIRouter(tags=["system"])
METRICS_MEDIA_TYPES = ("text/plain", "application/openmetrics-text")


@router.get(
    "/livez",
    operation_id="getLiveness",
    summary="Tell that the process lives",
    responses=public_problems(),
    dependencies=[Depends(accepts_json)],
)
async def livez() -> LivenessBody:
    """Answer without any I/O."""
    return LivenessBody(status="alive")


@router.get(
    "/readyz",
    operation_id="getReadiness",
    summary="Tell whether the service can serve",
    response_model=ReadinessBody,
    responses=public_problems(Unavailable),
    dependencies=[Depends(accepts_json)],
)
def readyz(request: Request) -> Response:
    """Answer 200 when database and store can be used; a broker that is down only degrades."""
    runtime: Runtime = request.state.runtime
    found = runtime.readiness.current()
    body = ReadinessBody(
        status=found.status,
        database=found.database,
        database_schema=found.schema,
        store=found.store,
        broker=found.broker,
    )
    headers = {} if found.ready else {"Retry-After": "5"}
    status = 200 if found.ready else 503
    return JSONResponse(body.model_dump(mode="json"), status_code=status, headers=headers)


@router.get(
    "/version",
    operation_id="getVersion",
    summary="Tell the version",
    responses=public_problems(),
    dependencies=[Depends(accepts_json)],
)
def get_version() -> VersionBody:
    """Name the release, the database schema it needs and the Python it runs on."""
    return VersionBody(
        version=version("evenhand"),
        database_schema=head_revision(),
        python=platform.python_version(),
    )


@router.get(
    "/metrics",
    operation_id="getServiceMetrics",
    summary="Measure the service",
    response_class=Response,
    responses=media("text/plain") | public_problems(NotFound),
    dependencies=[Depends(Represents(*METRICS_MEDIA_TYPES))],
)
def metrics(request: Request) -> Response:
    """Give metrics in the text format of Prometheus; off when they have a port of their own."""
    runtime: Runtime = request.state.runtime
    if runtime.context.settings.metrics_port is not None:
        raise NotFound("Metrics are served on a port of their own.")
    return Response(generate_latest(request.app.state.registry), media_type=CONTENT_TYPE_LATEST)
