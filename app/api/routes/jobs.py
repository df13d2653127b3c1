"""Jobs: create, read, change, pause, cancel, try again, delete."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse

from app.api.conditional import ExpectedVersions, is_unchanged, not_modified, version_tag
from app.api.creating import create_once
from app.api.deps import (
    Caller,
    IdempotencyTicket,
    JobId,
    JobsReader,
    JobsWriter,
    readers_turn,
    writers_turn,
)
from app.api.job_filters import read_filters
from app.api.job_views import job_body, job_counts, listed_bodies
from app.api.negotiation import accepts_json
from app.api.pagination import cut, link_next, read_page
from app.api.problems import Responses, problems
from app.api.waiting import preferred_wait, wait_for_change
from app.db.tables import Job
from app.db.uow import UnitOfWork
from app.domain.errors import (
    ConfigInvalid,
    IdempotencyKeyReused,
    InvalidCursor,
    InvalidState,
    MethodModelIncompatible,
    ModelGated,
    ModelNotFound,
    NotFound,
    PreconditionFailed,
    ProjectSuspended,
    QueueFull,
    QuotaExceeded,
    RequestTimeout,
    SecretUnreadable,
    TooLarge,
    UnsafeModelFormat,
    UnsupportedMediaType,
    UriNotAllowed,
)
from app.domain.states import JobStatus
from app.schemas.base import Page
from app.schemas.jobs import (
    CancelRequest,
    CreateJobParameters,
    GetJobParameters,
    JobBody,
    JobCounts,
    JobEstimate,
    JobListParameters,
    JobPatch,
    JobRequest,
    RetryJobRequest,
)
from app.services import jobs
from app.services.idempotency import Answer
from app.services.job_plan import JobPlan, plan_job, try_plan

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], dependencies=[Depends(accepts_json)])

ACCEPTED_HEADERS = {"Retry-After": "2"}
BODY_PROBLEMS = (UnsupportedMediaType, TooLarge, RequestTimeout)
ROOM_PROBLEMS = (ProjectSuspended, QuotaExceeded, QueueFull)
MODEL_PROBLEMS = (
    ConfigInvalid,
    MethodModelIncompatible,
    ModelNotFound,
    ModelGated,
    SecretUnreadable,
    UnsafeModelFormat,
    UriNotAllowed,
)


DRY_RUN: Responses = {
    200: {"description": "What `dry_run=true` found; nothing was stored.", "model": JobEstimate}
}


@router.post(
    "",
    status_code=202,
    operation_id="createJob",
    summary="Create a job",
    response_model=JobBody,
    responses=DRY_RUN
    | problems(*BODY_PROBLEMS, *MODEL_PROBLEMS, IdempotencyKeyReused, *ROOM_PROBLEMS),
    dependencies=[Depends(writers_turn, scope="function")],
)
def create_job(
    caller: JobsWriter,
    body: JobRequest,
    ticket: IdempotencyTicket,
    parameters: Annotated[CreateJobParameters, Query()],
) -> Response:
    """Validate the request against method and model, and queue the job.

    With `dry_run=true` nothing is stored and the answer is that of `estimateJob`.
    """
    if parameters.dry_run:
        return JSONResponse(_estimate(caller, body).model_dump(mode="json"))
    return create_once(
        caller,
        ticket,
        prepare=lambda: plan_job(caller.context, caller.principal, body),
        make=lambda u, plan: _accepted(u, caller, plan),
        headers=ACCEPTED_HEADERS,
    )


@router.post(
    "/estimate",
    operation_id="estimateJob",
    summary="Validate a job and estimate its needs",
    responses=problems(*BODY_PROBLEMS),
    dependencies=[Depends(readers_turn, scope="function")],
)
def estimate_job(caller: JobsReader, body: JobRequest) -> JobEstimate:
    """Do every validation of `createJob` and estimate memory and disk, storing nothing."""
    return _estimate(caller, body)


@router.get(
    "",
    operation_id="listJobs",
    summary="List jobs",
    responses=problems(InvalidCursor),
)
def list_jobs(
    caller: JobsReader,
    request: Request,
    response: Response,
    parameters: Annotated[JobListParameters, Query()],
) -> Page[JobBody]:
    """List the jobs of the project, newest first; all filters must match.

    The `config` of a listed job is as it was sent; read one job for its resolved config.
    """
    page = read_page(parameters, "jobs")
    filters = read_filters(parameters)
    with caller.uow() as u:
        found = cut(jobs.list_jobs(u, filters, before=page.before, limit=page.fetch), page)
        data = listed_bodies(u, found.rows)
    link_next(request, response, found.next_cursor)
    return Page(data=data, has_more=bool(found.next_cursor), next_cursor=found.next_cursor)


@router.get(
    "/summary",
    operation_id="getJobSummary",
    summary="Count jobs",
    responses=problems(),
)
def get_summary(caller: JobsReader) -> JobCounts:
    """Count the jobs of the project by status and device class."""
    with caller.uow() as u:
        return job_counts(u.jobs.count_by_status_and_class())


@router.get(
    "/{job_id}",
    operation_id="getJob",
    summary="Read a job",
    response_model=JobBody,
    responses=problems(NotFound) | {304: {"description": "The client's copy is current."}},
)
async def get_job(
    caller: JobsReader,
    request: Request,
    job_id: JobId,
    parameters: Annotated[GetJobParameters, Query()],
) -> Response:
    """Read a job; with `wait` (or `Prefer: wait=`) not before its status changes."""
    wait_s = parameters.wait if parameters.wait is not None else preferred_wait(request)
    if wait_s:
        await wait_for_change(caller, request, job_id, wait_s)

    def read() -> Response:
        with caller.uow() as u:
            job = jobs.get_job(u, job_id)
            if is_unchanged(request, version_tag(job.version)):
                return not_modified(version_tag(job.version))
            body = job_body(u, job, expand_artifacts=parameters.expand == "artifacts")
            return _tagged(job, body)

    return await run_in_threadpool(read)


@router.patch(
    "/{job_id}",
    operation_id="updateJob",
    summary="Change a job",
    response_model=JobBody,
    responses=problems(*BODY_PROBLEMS, NotFound, InvalidState, PreconditionFailed),
)
def update_job(
    caller: JobsWriter, job_id: JobId, body: JobPatch, expected: ExpectedVersions
) -> Response:
    """Change name or labels at any time, the priority while the job is queued."""
    with caller.uow(write=True) as u:
        job = jobs.patch_job(u, job_id, body, expected=expected)
        return _tagged(job, job_body(u, job))


@router.delete(
    "/{job_id}",
    status_code=204,
    operation_id="deleteJob",
    summary="Delete a job",
    responses=problems(NotFound, InvalidState, PreconditionFailed),
)
def delete_job(caller: JobsWriter, job_id: JobId, expected: ExpectedVersions) -> None:
    """Delete a finished job; its bytes are freed later, registered model versions stay."""
    with caller.uow(write=True) as u:
        jobs.delete_job(u, job_id, expected=expected)


@router.post(
    "/{job_id}/cancel",
    operation_id="cancelJob",
    summary="Cancel a job",
    response_model=JobBody,
    responses=problems(*BODY_PROBLEMS, NotFound, InvalidState)
    | {202: {"model": JobBody, "description": "A running job was asked to stop."}},
)
def cancel_job(caller: JobsWriter, job_id: JobId, body: CancelRequest | None = None) -> Response:
    """Cancel a waiting job at once (200), ask a running one to stop (202); repeatable."""
    keep = body.keep_checkpoint if body else False
    with caller.uow(write=True) as u:
        job = jobs.cancel_job(u, job_id, keep_checkpoint=keep)
        running = job.status == JobStatus.CANCELLING
        response = _tagged(job, job_body(u, job), status=202 if running else 200)
    caller.runtime.nudge()
    return response


@router.post(
    "/{job_id}/pause",
    operation_id="pauseJob",
    summary="Pause a job",
    response_model=JobBody,
    responses=problems(*BODY_PROBLEMS, NotFound, InvalidState)
    | {202: {"model": JobBody, "description": "The job was asked to pause."}},
)
def pause_job(caller: JobsWriter, job_id: JobId) -> Response:
    """Ask a running job to keep a checkpoint and free its device (202); repeatable."""
    with caller.uow(write=True) as u:
        job = jobs.pause_job(u, job_id, caller.context.methods)
        paused = job.status == JobStatus.PAUSED
        return _tagged(job, job_body(u, job), status=200 if paused else 202)


@router.post(
    "/{job_id}/resume",
    status_code=202,
    operation_id="resumeJob",
    summary="Resume a job",
    response_model=JobBody,
    responses=problems(*BODY_PROBLEMS, NotFound, InvalidState, *ROOM_PROBLEMS),
)
def resume_job(caller: JobsWriter, job_id: JobId) -> Response:
    """Queue a paused job again, to go on from its checkpoint, or withdraw the wish; repeatable."""
    with caller.uow(write=True) as u:
        job = jobs.resume_job(u, job_id, caller.context.settings)
        response = _tagged(job, job_body(u, job), status=202)
    caller.runtime.nudge()
    return response


@router.post(
    "/{job_id}/retry",
    status_code=202,
    operation_id="retryJob",
    summary="Try a job again",
    response_model=JobBody,
    responses=problems(*BODY_PROBLEMS, NotFound, InvalidState, *ROOM_PROBLEMS),
)
def retry_job(caller: JobsWriter, job_id: JobId, body: RetryJobRequest | None = None) -> Response:
    """Queue a failed or cancelled job again under the same id; its attempts are kept."""
    request = body or RetryJobRequest()
    with caller.uow(write=True) as u:
        job = jobs.retry_job(u, job_id, request, caller.context.settings)
        response = _tagged(job, job_body(u, job), status=202)
    caller.runtime.nudge()
    return response


def _estimate(caller: Caller, body: JobRequest) -> JobEstimate:
    outcome = try_plan(caller.context, caller.principal, body)
    plan = outcome.plan
    found: list[dict[str, Any]] = [
        {"pointer": item.pointer, "code": item.code, "message": item.message}
        for item in outcome.problems
    ]
    return JobEstimate(
        valid=plan is not None,
        problems=found,
        warnings=list(plan.warnings) if plan else [],
        resolved_spec=plan.spec.model_dump(mode="json") if plan else None,
        estimate=plan.estimate.as_json() if plan else None,
    )


def _accepted(u: UnitOfWork, caller: Caller, plan: JobPlan) -> Answer:
    created = jobs.create_job(
        u,
        plan,
        caller.context.settings,
        request_id=caller.request_id,
        traceparent=caller.traceparent,
    )
    body = job_body(u, created.job, position=created.position)
    body = body.model_copy(update={"warnings": list(plan.warnings)})
    return Answer(202, body.model_dump(mode="json"), body.links.self_, created.job.id)


def _tagged(job: Job, body: JobBody, *, status: int = 200) -> Response:
    headers = {"ETag": version_tag(job.version)}
    if status == 202:
        headers |= ACCEPTED_HEADERS | {"Location": body.links.self_}
    return JSONResponse(body.model_dump(mode="json"), status_code=status, headers=headers)
