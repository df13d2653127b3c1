"""Model versions and their files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.tables import Blob, ModelFile, ModelVersion


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file of a model version in the store."""

    path: str
    size_bytes: int
    sha256: str
    storage_key: str


@dataclass(frozen=True, slots=True)
class VersionOrigin:
    """The job that made a version, and the model it made it of."""

    job_id: UUID
    base_source: Mapping[str, Any]


class ModelRepository:
    """Model versions of one project."""

    def __init__(self, session: Session, project_id: UUID) -> None:
        self._session = session
        self._project_id = project_id

    def versions_of_jobs(self, job_ids: Sequence[UUID]) -> dict[UUID, UUID]:
        """Version ids by the job that made them."""
        statement = sa.select(ModelVersion.created_by_job_id, ModelVersion.id).where(
            ModelVersion.project_id == self._project_id,
            ModelVersion.created_by_job_id.in_(job_ids),
        )
        rows = self._session.execute(statement)
        return {job_id: version_id for job_id, version_id in rows if job_id is not None}

    def origin(self, version_id: UUID) -> VersionOrigin | None:
        """Say which job made a version, and of what; None where no job did."""
        statement = sa.select(ModelVersion.created_by_job_id, ModelVersion.base_source).where(
            ModelVersion.project_id == self._project_id, ModelVersion.id == version_id
        )
        row = self._session.execute(statement).one_or_none()
        if row is None or row.created_by_job_id is None:
            return None
        return VersionOrigin(row.created_by_job_id, row.base_source or {})

    def stored_files(self, version_id: UUID) -> list[StoredFile]:
        """Files of a version and where their bytes lie, by path; none once they have expired."""
        statement = (
            sa.select(ModelFile.path, ModelFile.size_bytes, Blob.sha256, Blob.storage_key)
            .join(ModelVersion, ModelVersion.id == ModelFile.model_version_id)
            .join(
                Blob,
                sa.and_(
                    Blob.project_id == ModelVersion.project_id,
                    Blob.sha256 == ModelFile.blob_sha256,
                    Blob.state == "stored",
                ),
            )
            .where(
                ModelVersion.project_id == self._project_id,
                ModelFile.model_version_id == version_id,
            )
            .order_by(ModelFile.path)
        )
        return [StoredFile(*row) for row in self._session.execute(statement)]
