"""What a job leaves behind as files: artifacts, manifest, report, checkpoints, spec."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from starlette.responses import JSONResponse

from app.api.artifact_views import artifact_body, manifest, sha256sums
from app.api.content import content_response
from app.api.deps import ArtifactsReader, JobId, JobsReader
from app.api.negotiation import JSON, Represents, accepts_json
from app.api.problems import media, problems
from app.api.record_views import checkpoint_bodies
from app.domain.errors import Gone, NotFound, StorageUnavailable
from app.domain.ids import IdPrefix, format_id
from app.domain.reproduction import request_of
from app.domain.specs import ResolvedSpec
from app.schemas.artifacts import ArtifactBody, Manifest
from app.schemas.base import Listing
from app.schemas.jobs import JobRequest
from app.schemas.records import CheckpointBody
from app.services import artifacts
from app.services.jobs import get_job

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["jobs"])
TEXT = "text/plain"
HTML = "text/html"
MARKDOWN = "text/markdown"
JSON_ONLY = [Depends(accepts_json)]


@router.get(
    "/artifacts",
    operation_id="listArtifacts",
    summary="List the artifacts of a job",
    responses=problems(NotFound),
    dependencies=JSON_ONLY,
)
def list_artifacts(caller: ArtifactsReader, job_id: JobId) -> Listing[ArtifactBody]:
    """List all files of the job, by name."""
    with caller.uow() as u:
        return Listing(data=[artifact_body(row) for row in artifacts.list_artifacts(u, job_id)])


@router.get(
    "/artifacts/manifest",
    operation_id="getManifest",
    summary="Read the digests of a job's files",
    response_model=Manifest,
    responses=media(TEXT) | problems(NotFound),
)
def get_manifest(
    caller: ArtifactsReader,
    job_id: JobId,
    media_type: Annotated[str, Depends(Represents(JSON, TEXT))],
) -> Response:
    """Read names, sizes and SHA-256; `Accept: text/plain` gives input for `sha256sum -c`."""
    with caller.uow() as u:
        rows = artifacts.list_artifacts(u, job_id)
    if media_type == TEXT:
        return Response(sha256sums(rows), media_type=TEXT)
    return JSONResponse(manifest(job_id, rows).model_dump(mode="json"))


@router.get(
    "/report",
    operation_id="getReport",
    summary="Read the report of a job",
    response_model=dict[str, Any],
    responses=media(HTML, MARKDOWN) | problems(NotFound, Gone, StorageUnavailable),
)
def get_report(
    caller: JobsReader,
    request: Request,
    job_id: JobId,
    media_type: Annotated[str, Depends(Represents(JSON, HTML, MARKDOWN))],
) -> Response:
    """Read the report as data or, by `Accept`, as a page to read or as Markdown."""
    with caller.uow() as u:
        report = artifacts.open_report(u, job_id, media_type)
    shown_inline = {"Content-Disposition": "inline", "Vary": "Accept"}
    return content_response(request, caller.context.store, report, headers=shown_inline)


@router.get(
    "/checkpoints",
    operation_id="listCheckpoints",
    summary="List the checkpoints of a job",
    responses=problems(NotFound),
    dependencies=JSON_ONLY,
)
def list_checkpoints(caller: JobsReader, job_id: JobId) -> Listing[CheckpointBody]:
    """List the points that the job can go on from, newest first."""
    with caller.uow() as u:
        return Listing(data=checkpoint_bodies(artifacts.list_checkpoints(u, job_id)))


@router.get(
    "/spec",
    operation_id="getJobSpec",
    summary="Read a job as a request that repeats it",
    response_model=JobRequest,
    responses=problems(NotFound),
    dependencies=JSON_ONLY,
)
def get_spec(caller: JobsReader, job_id: JobId) -> Response:
    """Read everything the job does, with all defaults written and all sources pinned."""
    with caller.uow() as u:
        spec = ResolvedSpec.model_validate(get_job(u, job_id).resolved_spec)
    name = format_id(IdPrefix.JOB, job_id)
    disposition = f'attachment; filename="{name}.json"'
    return JSONResponse(request_of(spec), headers={"Content-Disposition": disposition})
