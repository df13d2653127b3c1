"""Artifacts: describe them, open their bytes, make links to them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy.orm import Session

from app.db.repositories.artifacts import find_artifact
from app.db.repositories.keys import live_keys
from app.db.tables import Artifact, Blob, JobCheckpoint
from app.db.uow import UnitOfWork
from app.domain.audit import AuditAction
from app.domain.clock import format_time
from app.domain.errors import Gone, NotFound
from app.domain.ids import IdPrefix, format_id, parse_id
from app.security.signing import link_refused
from app.services.audit import record
from app.services.jobs import get_job
from app.storage.objects import ObjectStore

# In order of preference: a job that edits no model has no card, but a report in Markdown.
REPORTS = {
    "application/json": ("report.json",),
    "text/html": ("report.html",),
    "text/markdown": ("checkpoint/README.md", "report.md"),
}


@dataclass(frozen=True, slots=True)
class StoredArtifact:
    """An artifact whose bytes can be read."""

    row: Artifact
    storage_key: str

    def read(self, store: ObjectStore, start: int, end: int) -> Iterator[bytes]:
        """Read bytes `start` to `end`; trouble shows here, before an answer has begun."""
        if start == end:
            return iter(())
        chunks = store.stream(self.storage_key, start=start, end=end)
        return _chain(next(chunks), chunks)


def get_artifact(u: UnitOfWork, artifact_id: UUID) -> Artifact:
    """Return an artifact of the project."""
    return _found(u.artifacts.get(artifact_id))


def open_artifact(u: UnitOfWork, artifact_id: UUID) -> StoredArtifact:
    """Return an artifact with the place of its bytes.

    Raises
    ------
    Gone
        When retention has deleted the bytes.
    """
    row = get_artifact(u, artifact_id)
    return _stored(row, u.artifacts.blob(row.sha256))


def link_artifact(u: UnitOfWork, artifact_id: UUID, *, expires_in_s: int) -> StoredArtifact:
    """Open an artifact that a link is about to be made for: whoever holds it needs no key."""
    artifact = open_artifact(u, artifact_id)
    target = format_id(IdPrefix.ARTIFACT, artifact_id)
    record(u, AuditAction.ARTIFACT_LINKED, target=target, details={"expires_in_s": expires_in_s})
    return artifact


def open_linked_artifact(
    session: Session, artifact_id: UUID, *, issuer: str, now: datetime
) -> StoredArtifact:
    """Do the same for a signed link, which stands for the API key that made it.

    Raises
    ------
    Unauthenticated
        When that key, `issuer`, no longer works. A link of a service without keys names none.
    """
    key_id = parse_id(IdPrefix.KEY, issuer)
    if issuer and (key_id is None or not live_keys(session, [key_id], now=now)):
        raise link_refused()
    found = find_artifact(session, artifact_id)
    if found is None:
        raise _missing()
    return _stored(*found)


def list_artifacts(u: UnitOfWork, job_id: UUID) -> Sequence[Artifact]:
    """List the artifacts of a job, by name."""
    return u.artifacts.of_job(get_job(u, job_id).id)


def open_report(u: UnitOfWork, job_id: UUID, media_type: str) -> StoredArtifact:
    """Return the report of a job in one of its forms."""
    get_job(u, job_id)
    named = (u.artifacts.named(job_id, name) for name in REPORTS[media_type])
    row = next((row for row in named if row is not None), None)
    if row is None:
        raise NotFound(
            f"This job has no report as {media_type}: a report is there once the job has succeeded."
        )
    return _stored(row, u.artifacts.blob(row.sha256))


def list_checkpoints(u: UnitOfWork, job_id: UUID) -> Sequence[tuple[JobCheckpoint, bool]]:
    """List the checkpoints of a job, newest first, and whether each can be resumed from."""
    job = get_job(u, job_id)
    return [(row, row.spec_hash == job.spec_hash) for row in u.artifacts.checkpoints(job_id)]


def _stored(row: Artifact, blob: Blob | None) -> StoredArtifact:
    if row.deleted_at is not None or blob is None:
        moment = row.expires_at or row.deleted_at
        when = f", expired at {format_time(moment)}," if moment else ""
        raise Gone(f"The bytes of {row.name}{when} were deleted; run the job again to get them.")
    return StoredArtifact(row, blob.storage_key)


def _found(row: Artifact | None) -> Artifact:
    if row is None:
        raise _missing()
    return row


def _missing() -> NotFound:
    return NotFound("There is no such artifact in this project.")


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest
