"""The object store as an attempt uses it: an outage of minutes costs no work that was done."""

import random
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import structlog
from sqlalchemy.orm import Session

from app.db.repositories.blobs import StoredBlob, renew_blob
from app.db.tables import Job
from app.domain.errors import DebiasError, JobErrorCode, JobFailure, StorageUnavailable
from app.storage.blobs import BlobCorrupt, BlobRef, fetch_file, is_stored, store_file
from app.storage.hashing import FileDigest, hash_file
from app.storage.objects import ObjectStore
from workers.attempt.journal import Journal
from workers.attempt.storage_quota import hold_blob
from workers.heartbeat import StopSwitch
from workers.runtime.context import Stopped

log = structlog.get_logger()

# With the store's own retries: at least a minute and a half, for a restart or a fail-over.
TRIES = 8
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0

T = TypeVar("T")


class PatientStore:
    """Stores and fetches blobs of one job, and tries again while the store is away.

    Parameters
    ----------
    project
        As storage keys spell it.
    switch
        An attempt that has to stop does not wait for the store.
    """

    def __init__(
        self, store: ObjectStore, project: str, switch: StopSwitch, *, journal: Journal
    ) -> None:
        self._store = store
        self._journal = journal
        self._project = project
        self._switch = switch
        # After one blob whose bytes are others, none is taken for whole by its size.
        self._found_damage = False

    def keep(self, path: Path, name: str) -> StoredBlob:
        """Store a file, with its row; one that the project holds already costs one look.

        The rows that refer to it are inserted later, and confirm it then (`confirm_blobs`).

        Raises
        ------
        JobFailure
            `upload_failed` when the store stays away, `quota_exceeded` where there is no room.
        Stopped
            When the store is away and the attempt has to stop.
        Fenced, DatabaseUnreachable
            As the journal does.
        """
        digest = hash_file(path)
        known = self._renew(digest)
        try:
            if known is not None and not self._found_damage and self._holds(known, name):
                return known
            ref = self._patiently(
                lambda: store_file(self._store, self._project, path, digest), name
            )
        except DebiasError as exc:
            raise upload_failure(name) from exc
        uploaded = StoredBlob(ref.sha256, ref.size_bytes, ref.key)
        return self._record(uploaded, instead_of=known.key if known else None)

    def fetch(self, ref: BlobRef, path: Path) -> None:
        """Write a blob to a file.

        Raises
        ------
        DebiasError
            When the bytes are gone or others, or the store stays away.
        Stopped
            When the store is away and the attempt has to stop.
        """
        try:
            self._patiently(lambda: fetch_file(self._store, ref, path), path.name)
        except BlobCorrupt:
            self._found_damage = True
            raise

    def _renew(self, digest: FileDigest) -> StoredBlob | None:
        def renew(session: Session, job: Job, now: datetime) -> StoredBlob | None:
            return renew_blob(session, job.project_id, digest.sha256, now=now)

        return self._journal.patiently(lambda: self._journal.write_aside(renew))

    def _holds(self, blob: StoredBlob, name: str) -> bool:
        return self._patiently(lambda: is_stored(self._store, blob.key, blob.size_bytes), name)

    def _record(self, uploaded: StoredBlob, *, instead_of: str | None) -> StoredBlob:
        def record(session: Session, job: Job, now: datetime) -> StoredBlob:
            return hold_blob(session, job, uploaded, instead_of=instead_of, now=now)

        try:
            kept = self._journal.patiently(lambda: self._journal.write_aside(record))
        except JobFailure:
            self._discard(uploaded)
            raise
        if kept.key != uploaded.key:  # another job was faster with the same bytes
            self._discard(uploaded)
        return kept

    def _discard(self, uploaded: StoredBlob) -> None:
        # Nobody else knows the key; and what stays is collected later.
        with suppress(DebiasError):
            self._store.delete(uploaded.key)

    def _patiently(self, action: Callable[[], T], name: str) -> T:
        pause_s = FIRST_PAUSE_S
        for tries_left in reversed(range(TRIES)):
            try:
                return action()
            except StorageUnavailable as exc:
                log.warning("store_away", name=name, reason=exc.detail, tries_left=tries_left)
                if tries_left == 0:
                    raise
            if self._switch.wait(pause_s * random.uniform(0.5, 1.5)):
                raise Stopped
            pause_s = min(LONGEST_PAUSE_S, pause_s * 2)
        raise AssertionError("unreachable: the last try returns or raises")


def upload_failure(name: str) -> JobFailure:
    """Describe an output that is not in the store; another attempt may have more luck."""
    return JobFailure(
        JobErrorCode.UPLOAD_FAILED,
        f"The output {name} could not be stored.",
        "The object store does not answer, or refuses to write. Retry when it is back.",
        retryable=True,
    )
