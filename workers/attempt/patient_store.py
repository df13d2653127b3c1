"""The object store as an attempt uses it: an outage of minutes costs no work that was done."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import structlog

from app.db.repositories.outputs import StoredBlob
from app.domain.errors import DebiasError, JobErrorCode, JobFailure, StorageUnavailable
from app.storage.blobs import BlobRef, fetch_file, store_file
from app.storage.objects import ObjectStore
from workers.heartbeat import StopSwitch
from workers.runtime.context import Stopped

log = structlog.get_logger()

# With the store's own retries: at least a minute and a half, for a restart or a fail-over.
TRIES = 8
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0

T = TypeVar("T")


class PatientStore:
    """Stores and fetches blobs of one project, and tries again while the store is away.

    Parameters
    ----------
    switch
        An attempt that has to stop does not wait for the store.
    """

    def __init__(self, store: ObjectStore, project: str, switch: StopSwitch) -> None:
        self._store = store
        self._project = project
        self._switch = switch

    def keep(self, path: Path, name: str) -> StoredBlob:
        """Store a file; one that the project holds already costs one look.

        Raises
        ------
        JobFailure
            `upload_failed` when the store stays away.
        Stopped
            When the store is away and the attempt has to stop.
        """
        try:
            ref = self._patiently(lambda: store_file(self._store, self._project, path), name)
        except DebiasError as exc:
            raise _upload_failure(name) from exc
        return StoredBlob(ref.sha256, ref.size_bytes, ref.key)

    def fetch(self, ref: BlobRef, path: Path) -> None:
        """Write a blob to a file.

        Raises
        ------
        DebiasError
            When the bytes are gone or others, or the store stays away.
        Stopped
            When the store is away and the attempt has to stop.
        """
        self._patiently(lambda: fetch_file(self._store, ref, path), path.name)

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


def _upload_failure(name: str) -> JobFailure:
    return JobFailure(
        JobErrorCode.UPLOAD_FAILED,
        f"The output {name} could not be stored.",
        "The object store does not answer, or refuses to write. Retry when it is back.",
        retryable=True,
    )
