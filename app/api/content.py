"""Send the bytes of an artifact: ranges, preconditions, HEAD."""

from collections.abc import Mapping

from fastapi import Request
from starlette.responses import Response, StreamingResponse

from app.services.artifacts import StoredArtifact
from app.storage.content import content_response_plan
from app.storage.objects import ObjectStore


def content_response(
    request: Request,
    store: ObjectStore,
    artifact: StoredArtifact,
    *,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Answer with the bytes that were asked for, read by a thread while they are sent."""
    row = artifact.row
    is_head = bool(request.scope["state"].get("head"))
    plan = content_response_plan(
        request.headers,
        size_bytes=row.size_bytes,
        sha256=row.sha256,
        file_name=row.name,
        media_type=row.media_type,
        method="HEAD" if is_head else "GET",
    )
    sent = {**plan.headers, **(headers or {})}
    if is_head or plan.start == plan.end:
        return BodilessResponse(plan.status, sent)
    chunks = artifact.read(store, plan.start, plan.end)
    return StreamingResponse(chunks, status_code=plan.status, headers=sent)


class BodilessResponse(Response):
    """A response whose `Content-Length` tells of a body that is not sent."""

    def __init__(self, status_code: int, headers: Mapping[str, str]) -> None:
        super().__init__(status_code=status_code)
        self.raw_headers = [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in headers.items()
        ]
