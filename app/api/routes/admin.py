"""What operators do over all projects: limits, workers, queues."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.responses import JSONResponse

from app.api.admin_views import new_project_answer, project_detail, queue_body, worker_body
from app.api.conditional import ExpectedVersions, is_unchanged, not_modified, version_tag
from app.api.creating import create_once
from app.api.deps import Administrator, IdempotencyTicket, ProjectId, WorkerId
from app.api.key_views import new_key_answer
from app.api.negotiation import accepts_json
from app.api.pagination import cut, link_next, read_page
from app.api.problems import problems
from app.db.tables import Project
from app.domain.errors import (
    Conflict,
    IdempotencyKeyReused,
    InvalidCursor,
    InvalidState,
    NotFound,
    PreconditionFailed,
    RequestTimeout,
    TooLarge,
    UnsupportedMediaType,
)
from app.schemas.admin import (
    NewProjectBody,
    ProjectDetail,
    ProjectKeyRequest,
    ProjectPatch,
    ProjectRequest,
    QueueBody,
    WorkerBody,
    WorkerListParameters,
)
from app.schemas.base import Listing, Page, PageParameters
from app.schemas.keys import NewKeyBody
from app.security.scopes import Scope
from app.services import fleet, project_admin

router = APIRouter(prefix="/v1/admin", tags=["admin"], dependencies=[Depends(accepts_json)])

BODY_PROBLEMS = (UnsupportedMediaType, TooLarge, RequestTimeout)


@router.post(
    "/projects",
    status_code=201,
    operation_id="createProject",
    summary="Make a project",
    response_model=NewProjectBody,
    responses=problems(*BODY_PROBLEMS, Conflict, IdempotencyKeyReused),
)
def create_project(
    caller: Administrator, body: ProjectRequest, ticket: IdempotencyTicket
) -> Response:
    """Make a project and its first key, whose secret is in this answer and nowhere else."""
    return create_once(
        caller,
        ticket,
        prepare=lambda: None,
        make=lambda u, _: new_project_answer(project_admin.create_project(u, body)),
    )


@router.get(
    "/projects",
    operation_id="listProjects",
    summary="List projects",
    responses=problems(InvalidCursor),
)
def list_projects(
    caller: Administrator,
    request: Request,
    response: Response,
    parameters: Annotated[PageParameters, Query()],
) -> Page[ProjectDetail]:
    """List all projects with their limits, newest first."""
    page = read_page(parameters, "projects")
    with caller.uow() as u:
        found = cut(project_admin.list_projects(u, before=page.before, limit=page.fetch), page)
    link_next(request, response, found.next_cursor)
    data = [project_detail(row) for row in found.rows]
    return Page(data=data, has_more=bool(found.next_cursor), next_cursor=found.next_cursor)


@router.get(
    "/projects/{project_id}",
    operation_id="getProject",
    summary="Read a project",
    response_model=ProjectDetail,
    responses=problems(NotFound) | {304: {"description": "The client's copy is current."}},
)
def get_project(caller: Administrator, request: Request, project_id: ProjectId) -> Response:
    """Read a project's limits; what it uses is in its own `/v1/me`."""
    with caller.uow() as u:
        project = project_admin.get_project(u, project_id)
    tag = version_tag(project.version)
    return not_modified(tag) if is_unchanged(request, tag) else _tagged(project)


@router.patch(
    "/projects/{project_id}",
    operation_id="updateProject",
    summary="Change a project",
    response_model=ProjectDetail,
    responses=problems(*BODY_PROBLEMS, NotFound, Conflict, PreconditionFailed),
)
def update_project(
    caller: Administrator, project_id: ProjectId, body: ProjectPatch, expected: ExpectedVersions
) -> Response:
    """Change limits or suspend; they hold from the next decision on, and end no running job."""
    with caller.uow(write=True) as u:
        project = project_admin.update_project(u, project_id, body, expected=expected)
    caller.runtime.nudge()
    return _tagged(project)


@router.post(
    "/projects/{project_id}/keys",
    status_code=201,
    operation_id="createProjectKey",
    summary="Make a key for a project",
    response_model=NewKeyBody,
    responses=problems(*BODY_PROBLEMS, NotFound, IdempotencyKeyReused),
)
def create_project_key(
    caller: Administrator, project_id: ProjectId, body: ProjectKeyRequest, ticket: IdempotencyTicket
) -> Response:
    """Make a further key for a tenant who has lost theirs; its secret is shown this once."""
    scopes = None if body.scopes is None else [Scope(name) for name in body.scopes]
    return create_once(
        caller,
        ticket,
        prepare=lambda: None,
        make=lambda u, _: new_key_answer(
            project_admin.create_project_key(
                u, project_id, name=body.name, scopes=scopes, expires_at=body.expires_at
            )
        ),
    )


@router.get(
    "/workers",
    operation_id="listWorkers",
    summary="List workers",
    responses=problems(InvalidCursor),
)
def list_workers(
    caller: Administrator,
    request: Request,
    response: Response,
    parameters: Annotated[WorkerListParameters, Query()],
) -> Page[WorkerBody]:
    """List workers as they last described themselves, newest first."""
    page = read_page(parameters, "workers")
    with caller.uow() as u:
        rows = fleet.list_workers(u, parameters.state, before=page.before, limit=page.fetch)
        found = cut(rows, page)
        held = fleet.held_jobs(u, found.rows)
    link_next(request, response, found.next_cursor)
    data = [worker_body(row, held) for row in found.rows]
    return Page(data=data, has_more=bool(found.next_cursor), next_cursor=found.next_cursor)


@router.post(
    "/workers/{worker_id}/drain",
    status_code=202,
    operation_id="drainWorker",
    summary="Drain a worker",
    responses=problems(NotFound, InvalidState),
)
def drain_worker(caller: Administrator, worker_id: WorkerId) -> WorkerBody:
    """Give the worker no more jobs; it hands back the running one and ends. Repeatable."""
    with caller.uow(write=True) as u:
        worker = fleet.drain_worker(u, worker_id)
        return worker_body(worker, fleet.held_jobs(u, [worker]))


@router.get(
    "/queues",
    operation_id="listQueues",
    summary="List queues",
    responses=problems(),
)
def list_queues(caller: Administrator) -> Listing[QueueBody]:
    """Tell for each device class what waits and runs, and who serves it."""
    with caller.uow() as u:
        queues = fleet.list_queues(u, caller.context.settings)
        return Listing(data=[queue_body(queue, u.now) for queue in queues])


def _tagged(project: Project) -> Response:
    body = project_detail(project).model_dump(mode="json")
    return JSONResponse(body, headers={"ETag": version_tag(project.version)})
