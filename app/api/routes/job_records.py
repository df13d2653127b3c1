"""What a job leaves behind as rows: events, attempts, logs, metrics, evaluations."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, StreamingResponse

from app.api.deps import Caller, JobId, JobsReader
from app.api.log_stream import NDJSON, JobLogStream
from app.api.negotiation import JSON, Represents, accepts_json, choose_media_type
from app.api.problems import media, problems
from app.api.record_views import (
    attempt_body,
    evaluation_body,
    event_body,
    log_line,
    metric_series,
    metrics_csv,
)
from app.api.sse import SSE_MEDIA_TYPE, JobEventStream, last_event_id
from app.api.streams import STREAM_HEADERS
from app.domain.errors import Gone, NotFound, StorageUnavailable
from app.schemas.base import Listing
from app.schemas.records import (
    AttemptBody,
    EvaluationBody,
    EventPage,
    EventParameters,
    LogPage,
    LogParameters,
    MetricNameBody,
    MetricParameters,
    MetricSeries,
)
from app.services import logs, records
from app.services.jobs import get_job

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["jobs"])
TEXT = "text/plain"
CSV = "text/csv"
JSON_ONLY = [Depends(accepts_json)]


@router.get(
    "/attempts",
    operation_id="listAttempts",
    summary="List the attempts of a job",
    responses=problems(NotFound),
    dependencies=JSON_ONLY,
)
def list_attempts(caller: JobsReader, job_id: JobId) -> Listing[AttemptBody]:
    """List every try at the job, first to last, with its outcome and its peaks."""
    with caller.uow() as u:
        return Listing(data=[attempt_body(row) for row in records.list_attempts(u, job_id)])


@router.get(
    "/events",
    operation_id="listEvents",
    summary="Read or stream the events of a job",
    response_model=EventPage,
    responses=media(SSE_MEDIA_TYPE) | problems(NotFound),
)
async def list_events(
    caller: JobsReader,
    request: Request,
    job_id: JobId,
    parameters: Annotated[EventParameters, Query()],
    media_type: Annotated[str, Depends(Represents(JSON, SSE_MEDIA_TYPE))],
) -> Response:
    """Read events in order, or stream them with `Accept: text/event-stream`.

    A stream resumes after `Last-Event-ID` and ends with the event `done` once the job is finished.
    """
    if media_type == JSON:
        return await run_in_threadpool(_event_page, caller, job_id, parameters)
    after = last_event_id(request, parameters.after)
    await run_in_threadpool(_require_job, caller, job_id)
    if request.scope["state"].get("head"):
        return Response(headers=STREAM_HEADERS, media_type=SSE_MEDIA_TYPE)
    return JobEventStream(caller, job_id, after)


@router.get(
    "/logs",
    operation_id="listLogs",
    summary="Read the logs of a job",
    response_model=LogPage,
    responses=media(TEXT, NDJSON) | problems(NotFound, Gone, StorageUnavailable),
)
async def list_logs(
    caller: JobsReader,
    request: Request,
    job_id: JobId,
    parameters: Annotated[LogParameters, Query()],
) -> Response:
    """Read log lines during and after the run; `Accept: text/plain` gives all of them raw.

    With `follow=true` the answer stays open and brings new lines until the job is finished.
    """
    offered = (NDJSON, TEXT) if parameters.follow else (JSON, TEXT)
    media_type = choose_media_type(request.headers.getlist("accept"), offered)
    query = _log_query(parameters)
    if not parameters.follow:
        return await run_in_threadpool(
            _log_page, caller, job_id, query, media_type, parameters.limit
        )
    await run_in_threadpool(_require_job, caller, job_id)
    if request.scope["state"].get("head"):
        return Response(headers=STREAM_HEADERS, media_type=media_type)
    return JobLogStream(caller, job_id, query, media_type)


@router.get(
    "/metrics",
    operation_id="listMetrics",
    summary="Read the step metrics of a job",
    response_model=Listing[MetricSeries],
    responses=media(CSV) | problems(NotFound),
)
def list_metrics(
    caller: JobsReader,
    job_id: JobId,
    parameters: Annotated[MetricParameters, Query()],
    media_type: Annotated[str, Depends(Represents(JSON, CSV))],
) -> Response:
    """Read curves; long ones are thinned out so that minima and maxima stay."""
    with caller.uow() as u:
        curves = records.read_metrics(u, job_id, **parameters.model_dump())
    if media_type == CSV:
        return Response(metrics_csv(curves), media_type=CSV)
    body = Listing[MetricSeries](data=[metric_series(curve) for curve in curves])
    return JSONResponse(body.model_dump(mode="json"))


@router.get(
    "/metrics/names",
    operation_id="listMetricNames",
    summary="List the step metrics of a job",
    responses=problems(NotFound),
    dependencies=JSON_ONLY,
)
def list_metric_names(caller: JobsReader, job_id: JobId) -> Listing[MetricNameBody]:
    """List the names that have points, with their number and last step."""
    with caller.uow() as u:
        found = records.list_metric_names(u, job_id)
    return Listing(data=[MetricNameBody(**row) for row in found])


@router.get(
    "/evaluations",
    operation_id="listEvaluations",
    summary="List the evaluation rows of a job",
    responses=problems(NotFound),
    dependencies=JSON_ONLY,
)
def list_evaluations(caller: JobsReader, job_id: JobId) -> Listing[EvaluationBody]:
    """List metrics before and after, by group and seed, with their intervals."""
    with caller.uow() as u:
        return Listing(data=[evaluation_body(row) for row in records.list_evaluations(u, job_id)])


def _event_page(caller: Caller, job_id: JobId, parameters: EventParameters) -> Response:
    with caller.uow() as u:
        batch = records.read_events(u, job_id, after=parameters.after, limit=parameters.limit + 1)
    shown = [event_body(row) for row in batch.events[: parameters.limit]]
    page = EventPage(
        data=shown,
        has_more=len(batch.events) > parameters.limit,
        next_after=shown[-1].seq if shown else parameters.after,
    )
    return JSONResponse(page.model_dump(mode="json"))


def _log_query(parameters: LogParameters) -> logs.LogQuery:
    return logs.LogQuery(
        attempt=parameters.attempt,
        stream=parameters.stream,
        level=parameters.level,
        positions=logs.read_positions(parameters.after),
    )


def _log_page(
    caller: Caller, job_id: JobId, query: logs.LogQuery, media_type: str, limit: int
) -> Response:
    with caller.uow() as u:
        chunks = logs.find_chunks(u, job_id, query)
    store = caller.context.store
    if media_type == TEXT:
        return StreamingResponse(logs.read_text(store, chunks, query), media_type=TEXT)
    found = logs.read_slice(store, chunks, query, limit=limit)
    lines = [log_line(line) for line in found.lines]
    page = LogPage(data=lines, has_more=found.has_more, next_after=found.next_after)
    return JSONResponse(page.model_dump(mode="json"))


def _require_job(caller: Caller, job_id: JobId) -> None:
    with caller.uow() as u:
        get_job(u, job_id)
