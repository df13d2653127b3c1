"""Store what finished phases and running engines want kept, and find it again."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy.typing as npt
import sqlalchemy as sa
import structlog
from safetensors import SafetensorError
from sqlalchemy.orm import Session

from app.crash_points import crash_point
from app.db.repositories.blobs import BlobVanished, confirm_blobs
from app.db.repositories.execution import Claim
from app.db.repositories.outputs import (
    NewPoint,
    drop_old_steps,
    insert_point,
    live_points,
)
from app.db.tables import Blob, Job, JobCheckpoint
from app.domain.errors import DebiasError
from app.domain.states import Phase
from app.storage.blobs import BlobRef
from workers.attempt.journal import Journal
from workers.attempt.patient_store import PatientStore, upload_failure
from workers.attempt.storage_quota import require_room
from workers.runtime.checkpoints import PointFiles, read_point, write_point
from workers.runtime.context import Arrays, Checkpoint, PhaseOutput

log = structlog.get_logger()

KEPT_STEPS = 2

AlsoWrite = Callable[[Session, Job, datetime], None]
Found = tuple[JobCheckpoint, dict[str, npt.NDArray[Any]], dict[str, Any]]


class PointStore:
    """Checkpoints of one job, as one attempt reads and writes them.

    A point is used again only if the spec and the engine that made it are this attempt's.
    """

    def __init__(
        self,
        journal: Journal,
        claim: Claim,
        folder: Path,
        *,
        storage: PatientStore,
        engine_version: str,
    ) -> None:
        self._storage = storage
        self._journal = journal
        self._claim = claim
        self._folder = folder
        self._engine_version = engine_version
        self._written = 0

    def save_phase(
        self, phase: Phase, output: PhaseOutput, *, also: AlsoWrite | None = None
    ) -> None:
        """Keep what a phase has found, with rows that belong to the same transaction."""
        self._save(phase, None, output.arrays, dict(output.state), also)

    def load_phase(self, phase: Phase) -> PhaseOutput | None:
        """Give what an earlier attempt's phase has found."""
        found = self._newest(phase, with_step=False)
        if found is None:
            return None
        _, arrays, state = found
        return PhaseOutput(state=state, arrays=arrays)

    def save_step(self, phase: Phase, step: int, arrays: Arrays, state: dict[str, Any]) -> None:
        """Keep a point inside a phase; the newest two remain."""
        self._save(phase, step, arrays, state, _drop_older)

    def load_step(self, phase: Phase) -> Checkpoint | None:
        """Give the newest point inside the phase, with what it took with it."""
        found = self._newest(phase, with_step=True)
        if found is None:
            return None
        point, arrays, state = found
        return Checkpoint(step=point.step or 0, arrays=arrays, state=state)

    def _save(
        self,
        phase: Phase,
        step: int | None,
        arrays: Arrays,
        state: dict[str, Any],
        also: AlsoWrite | None,
    ) -> None:
        self._written += 1
        files = write_point(self._folder / f"out-{self._written}", arrays, state)
        written = [path for path in (files.state, files.arrays) if path is not None]
        require_room(self._journal, self._claim, written)
        name = f"{phase} checkpoint"
        stored_state = self._storage.keep(files.state, name)
        stored_arrays = self._storage.keep(files.arrays, name) if files.arrays else None
        blobs = [blob for blob in (stored_state, stored_arrays) if blob is not None]
        point = NewPoint(phase, step, stored_state, stored_arrays, self._engine_version)

        def insert(session: Session, job: Job, now: datetime) -> None:
            confirm_blobs(session, job.project_id, blobs, now=now)
            insert_point(session, job, point, now=now)
            if also is not None:
                also(session, job, now)

        if step is not None:
            data = {"phase": str(phase), "step": step, "action": "saved"}
            self._journal.event("job.checkpoint", data)
        crash_point("point_stored", self._claim.attempt)
        try:
            self._journal.patiently(lambda: self._journal.write(insert))
        except BlobVanished as exc:
            raise upload_failure(name) from exc
        crash_point("point_saved", self._claim.attempt)

    def _newest(self, phase: Phase, *, with_step: bool) -> Found | None:
        """Read the newest point that fits and is whole; say so where there was one that is not."""
        claim = self._claim
        listed = self._journal.patiently(
            lambda: self._journal.read(
                lambda session: live_points(session, claim.project_id, claim.job_id, phase=phase)
            )
        )
        points = [point for point in listed if (point.step is not None) == with_step]
        fitting = [point for point in points if self._fits(point)]
        if points and not fitting:
            self._journal.warn(
                "checkpoint_outdated",
                f"The stored state of {phase} was made by another version of the method: the "
                "phase starts over.",
            )
        for point in fitting:
            try:
                return point, *self._read(point)
            except (DebiasError, ValueError, SafetensorError):
                log.exception("checkpoint_unreadable", point=str(point.id))
                self._journal.warn(
                    "checkpoint_unreadable",
                    f"A stored state of {phase} could not be read: an older one is used, or the "
                    "phase starts over.",
                )
        return None

    def _fits(self, point: JobCheckpoint) -> bool:
        return (
            point.spec_hash == self._claim.spec_hash
            and point.engine_version == self._engine_version
        )

    def _read(self, point: JobCheckpoint) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        folder = self._folder / f"in-{point.id}"
        folder.mkdir(exist_ok=True)
        state = self._fetch(point.state_sha256, folder / "state.json")
        arrays = None
        if point.arrays_sha256 is not None:
            arrays = self._fetch(point.arrays_sha256, folder / "arrays.safetensors")
        return read_point(PointFiles(state, arrays))

    def _fetch(self, sha256: str, path: Path) -> Path:
        wanted = sa.select(Blob).where(
            Blob.project_id == self._claim.project_id, Blob.sha256 == sha256
        )
        blob = self._journal.patiently(
            lambda: self._journal.read(lambda session: session.execute(wanted).scalar_one())
        )
        ref = BlobRef(sha256=blob.sha256, size_bytes=blob.size_bytes, key=blob.storage_key)
        self._storage.fetch(ref, path)
        return path


def _drop_older(session: Session, job: Job, now: datetime) -> None:
    drop_old_steps(session, job, keep=KEPT_STEPS, now=now)
