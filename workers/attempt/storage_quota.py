"""Keep a project within its storage quota, whatever its jobs produce."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from sqlalchemy.orm import Session

from app.db.repositories.blobs import StoredBlob, record_blob
from app.db.repositories.execution import Claim
from app.db.repositories.projects import ProjectRepository
from app.db.tables import Job
from app.domain.errors import JobErrorCode, JobFailure
from app.storage.hashing import hash_file
from workers.attempt.journal import Journal


def require_room(journal: Journal, claim: Claim, paths: Sequence[Path]) -> None:
    """Refuse files for which the project has no room, before a byte of them is stored.

    Bytes that are stored and then refused would lie in the store, counted by nobody, until
    garbage collection finds them.

    Raises
    ------
    JobFailure
        `quota_exceeded`, which no further attempt would mend.
    """

    def read_room(session: Session) -> tuple[int, int] | None:
        project = ProjectRepository(session, claim.project_id)
        limit = project.get().max_storage_bytes
        return None if limit is None else (limit, project.stored_bytes())

    room = journal.patiently(lambda: journal.read(read_room))
    if room is None:
        return
    limit, used = room
    if used + sum(path.stat().st_size for path in paths) <= limit:
        return  # fits even if all of it is new; hashing large files twice takes time
    sizes = {digest.sha256: digest.size_bytes for digest in map(hash_file, paths)}
    held = journal.patiently(
        lambda: journal.read(
            lambda session: ProjectRepository(session, claim.project_id).held_digests(sizes)
        )
    )
    added = sum(size for sha256, size in sizes.items() if sha256 not in held)
    if added and used + added > limit:
        raise storage_exceeded(limit=limit, used=used, added=added)


def hold_blob(
    session: Session, job: Job, blob: StoredBlob, *, instead_of: str | None, now: datetime
) -> StoredBlob:
    """Record uploaded bytes as the project's, within its quota, and give the upload that counts.

    Exact: the project is locked, so two jobs that end together cannot share one last gap.

    Raises
    ------
    JobFailure
        `quota_exceeded`; nothing of the transaction may then be kept.
    """
    project = ProjectRepository(session, job.project_id)
    if project.get().max_storage_bytes is None:
        return record_blob(session, job.project_id, blob, now=now, instead_of=instead_of)
    limit = project.lock().max_storage_bytes
    before = project.stored_bytes()
    kept = record_blob(session, job.project_id, blob, now=now, instead_of=instead_of)
    added = project.stored_bytes() - before
    if limit is not None and added > 0 and before + added > limit:
        raise storage_exceeded(limit=limit, used=before, added=added)
    return kept


def storage_exceeded(*, limit: int, used: int, added: int) -> JobFailure:
    """Describe files that do not fit into what the project may store."""
    return JobFailure(
        JobErrorCode.QUOTA_EXCEEDED,
        f"The job would store {added} bytes. The quota max_storage_bytes of the project is "
        f"{limit} bytes, of which {used} are used.",
        "Delete jobs that are no longer needed, or ask the operator for more, then retry the job. "
        "Bytes of deleted jobs count until they are freed.",
        fields={"quota": "max_storage_bytes", "limit": limit, "used": used, "needed": added},
    )
