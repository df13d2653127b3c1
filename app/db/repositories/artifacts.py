"""Artifacts and checkpoints of jobs."""

from collections.abc import Sequence
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.tables import Artifact, Blob, Job, JobCheckpoint


def find_artifact(session: Session, artifact_id: UUID) -> tuple[Artifact, Blob | None] | None:
    """Find an artifact for a signed link, which names no project: the signature was checked."""
    statement = (
        sa.select(Artifact, Blob)
        .join(Job, Job.id == Artifact.job_id)
        .outerjoin(
            Blob,
            sa.and_(
                Blob.project_id == Artifact.project_id,
                Blob.sha256 == Artifact.sha256,
                Blob.state == "stored",
            ),
        )
        .where(Artifact.id == artifact_id, Job.deleted_at.is_(None))
    )
    row = session.execute(statement).one_or_none()
    return (row[0], row[1]) if row else None


class ArtifactRepository:
    """Artifacts of one project's jobs that were not deleted."""

    def __init__(self, session: Session, project_id: UUID) -> None:
        self._session = session
        self._project_id = project_id

    def get(self, artifact_id: UUID) -> Artifact | None:
        """Return an artifact, also one whose bytes have expired."""
        statement = self._visible().where(Artifact.id == artifact_id)
        return self._session.execute(statement).scalar_one_or_none()

    def named(self, job_id: UUID, name: str) -> Artifact | None:
        """Return the artifact of a job by its name."""
        statement = self._visible().where(Artifact.job_id == job_id, Artifact.name == name)
        return self._session.execute(statement).scalar_one_or_none()

    def of_job(self, job_id: UUID) -> Sequence[Artifact]:
        """List all artifacts of a job, by name."""
        statement = self._visible().where(Artifact.job_id == job_id).order_by(Artifact.name)
        return self._session.execute(statement).scalars().all()

    def of_jobs(self, job_ids: Sequence[UUID]) -> Sequence[Artifact]:
        """List all artifacts of several jobs, by name."""
        statement = self._visible().where(Artifact.job_id.in_(job_ids)).order_by(Artifact.name)
        return self._session.execute(statement).scalars().all()

    def blob(self, sha256: str) -> Blob | None:
        """Return the stored bytes of that digest; None once they are being deleted."""
        statement = sa.select(Blob).where(
            Blob.project_id == self._project_id, Blob.sha256 == sha256, Blob.state == "stored"
        )
        return self._session.execute(statement).scalar_one_or_none()

    def checkpoints(self, job_id: UUID) -> Sequence[JobCheckpoint]:
        """List the live checkpoints of a job, newest first."""
        statement = (
            sa.select(JobCheckpoint)
            .where(
                JobCheckpoint.project_id == self._project_id,
                JobCheckpoint.job_id == job_id,
                JobCheckpoint.deleted_at.is_(None),
            )
            .order_by(JobCheckpoint.id.desc())
        )
        return self._session.execute(statement).scalars().all()

    def _visible(self) -> sa.Select[Artifact]:
        return (
            sa.select(Artifact)
            .join(Job, Job.id == Artifact.job_id)
            .where(Artifact.project_id == self._project_id, Job.deleted_at.is_(None))
        )
