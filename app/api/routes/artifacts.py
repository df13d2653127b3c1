"""Artifacts: what they are, their bytes, and links to them."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.responses import JSONResponse

from app.api.artifact_views import artifact_body
from app.api.conditional import is_unchanged, not_modified, version_tag
from app.api.content import content_response
from app.api.deps import ArtifactId, ArtifactsReader
from app.api.negotiation import accepts_json
from app.api.problems import Responses, problems, public_problems
from app.api.state import Runtime
from app.domain.errors import (
    Gone,
    InvalidRange,
    NotFound,
    PreconditionFailed,
    RangeNotSatisfiable,
    RequestTimeout,
    StorageUnavailable,
    TooLarge,
    Unauthenticated,
    UnsupportedMediaType,
    ValidationFailed,
)
from app.domain.ids import IdPrefix, format_id
from app.schemas.artifacts import ArtifactBody, LinkBody, LinkRequest
from app.services import artifacts

router = APIRouter(prefix="/v1/artifacts", tags=["artifacts"])
public_router = APIRouter(prefix="/downloads", tags=["artifacts"])

CONTENT_PROBLEMS = (
    NotFound,
    Gone,
    PreconditionFailed,
    InvalidRange,
    RangeNotSatisfiable,
    StorageUnavailable,
)
# The media type of an answer is that of the file.
BYTES: Responses = {
    200: {"description": "All bytes.", "content": {"*/*": {}}},
    206: {"description": "The bytes of the range.", "content": {"*/*": {}}},
    304: {"description": "The client's copy is current."},
}


@router.get(
    "/{artifact_id}",
    operation_id="getArtifact",
    summary="Read an artifact's description",
    response_model=ArtifactBody,
    responses=problems(NotFound) | {304: {"description": "The client's copy is current."}},
    dependencies=[Depends(accepts_json)],
)
def get_artifact(caller: ArtifactsReader, request: Request, artifact_id: ArtifactId) -> Response:
    """Read name, type, size and SHA-256 of an artifact."""
    with caller.uow() as u:
        row = artifacts.get_artifact(u, artifact_id)
    tag = version_tag(row.version)
    if is_unchanged(request, tag):
        return not_modified(tag)
    return JSONResponse(artifact_body(row).model_dump(mode="json"), headers={"ETag": tag})


@router.get(
    "/{artifact_id}/content",
    operation_id="getArtifactContent",
    summary="Read an artifact's bytes",
    response_class=Response,
    responses={**problems(*CONTENT_PROBLEMS), **BYTES},
)
def get_content(caller: ArtifactsReader, request: Request, artifact_id: ArtifactId) -> Response:
    """Read the bytes, or a single range of them; the ETag is their SHA-256."""
    with caller.uow() as u:
        artifact = artifacts.open_artifact(u, artifact_id)
    return content_response(request, caller.context.store, artifact)


@router.post(
    "/{artifact_id}/download-url",
    operation_id="createDownloadUrl",
    summary="Make a download link",
    responses=problems(NotFound, Gone, UnsupportedMediaType, TooLarge, RequestTimeout),
    dependencies=[Depends(accepts_json)],
)
def create_download_url(
    caller: ArtifactsReader,
    request: Request,
    artifact_id: ArtifactId,
    body: LinkRequest | None = None,
) -> LinkBody:
    """Make a link that reads the artifact without a key until it expires.

    A link of this service ends with the key that made it; one of an S3 store only when it expires.
    """
    expires_in_s = (body or LinkRequest()).expires_in_s
    with caller.uow(write=True) as u:
        artifact = artifacts.link_artifact(u, artifact_id, expires_in_s=expires_in_s)
        expires_at = u.now + timedelta(seconds=expires_in_s)
    url = caller.context.store.signed_url(artifact.storage_key, expires_in_s=expires_in_s)
    if url is None:
        shown = format_id(IdPrefix.ARTIFACT, artifact_id)
        key_id = caller.principal.key_id
        issuer = format_id(IdPrefix.KEY, key_id) if key_id else ""
        signature = caller.runtime.signer.sign(shown, expires_at=expires_at, issuer=issuer)
        base = str(caller.context.settings.public_url or request.base_url).rstrip("/")
        url = f"{base}/downloads/{shown}?{signature.query}"
    return LinkBody(url=url, expires_at=expires_at)


@public_router.get(
    "/{artifact_id}",
    operation_id="getDownload",
    summary="Read an artifact's bytes by a signed link",
    response_class=Response,
    responses={**public_problems(Unauthenticated, ValidationFailed, *CONTENT_PROBLEMS), **BYTES},
)
def get_download(
    request: Request,
    artifact_id: ArtifactId,
    expires: Annotated[str, Query(max_length=20)] = "",
    issuer: Annotated[str, Query(max_length=64)] = "",
    key: Annotated[str, Query(max_length=64)] = "",
    signature: Annotated[str, Query(max_length=128)] = "",
) -> Response:
    """Read the bytes as `getArtifactContent` does; the signature in the link is the permission."""
    runtime: Runtime = request.state.runtime
    shown = format_id(IdPrefix.ARTIFACT, artifact_id)
    database = runtime.context.database
    with database.read() as session:
        now = database.now(session)
        runtime.signer.verify(
            shown, expires=expires, issuer=issuer, key=key, signature=signature, now=now
        )
        artifact = artifacts.open_linked_artifact(session, artifact_id, issuer=issuer, now=now)
    return content_response(request, runtime.context.store, artifact)
