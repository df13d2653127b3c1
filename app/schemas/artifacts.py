"""Bodies of artifacts."""

from pydantic import Field

from app.schemas.base import RequestBody, ResponseBody, Timestamp

MIN_LINK_S = 60
MAX_LINK_S = 86_400


class ArtifactBody(ResponseBody):
    """One file that a job left behind."""

    id: str
    job_id: str
    name: str = Field(examples=["checkpoint/model.safetensors"])
    type: str
    media_type: str
    size_bytes: int
    sha256: str
    created_at: Timestamp
    expires_at: Timestamp | None
    deleted_at: Timestamp | None
    content: str = Field(description="Path of the bytes.")


class ManifestFile(ResponseBody):
    """One line of a manifest."""

    name: str
    size_bytes: int
    sha256: str


class Manifest(ResponseBody):
    """All files of a job."""

    job_id: str
    total_bytes: int
    files: list[ManifestFile]


class LinkRequest(RequestBody):
    """A download link to make."""

    expires_in_s: int = Field(default=3600, ge=MIN_LINK_S, le=MAX_LINK_S)


class LinkBody(ResponseBody):
    """A link that reads one artifact without a key until it expires."""

    url: str
    expires_at: Timestamp
