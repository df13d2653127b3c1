"""Artifacts as response bodies."""

from collections.abc import Sequence
from uuid import UUID

from app.db.tables import Artifact
from app.domain.ids import IdPrefix, format_id
from app.schemas.artifacts import ArtifactBody, Manifest, ManifestFile


def artifact_body(row: Artifact) -> ArtifactBody:
    """Show an artifact."""
    shown = format_id(IdPrefix.ARTIFACT, row.id)
    return ArtifactBody(
        id=shown,
        job_id=format_id(IdPrefix.JOB, row.job_id),
        name=row.name,
        type=row.type,
        media_type=row.media_type,
        size_bytes=row.size_bytes,
        sha256=row.sha256,
        created_at=row.created_at,
        expires_at=row.expires_at,
        deleted_at=row.deleted_at,
        content=f"/v1/artifacts/{shown}/content",
    )


def manifest(job_id: UUID, rows: Sequence[Artifact]) -> Manifest:
    """List all files of a job with sizes and digests."""
    files = [
        ManifestFile(name=row.name, size_bytes=row.size_bytes, sha256=row.sha256) for row in rows
    ]
    return Manifest(
        job_id=format_id(IdPrefix.JOB, job_id),
        total_bytes=sum(file.size_bytes for file in files),
        files=files,
    )


def sha256sums(rows: Sequence[Artifact]) -> str:
    """Write the digests so that `sha256sum -c` can check them."""
    return "".join(f"{row.sha256}  {row.name}\n" for row in rows)
