"""Store an attempt's files, then make them and the success of the job one transaction."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from app.crash_points import crash_point
from app.db.events import append_event
from app.db.repositories.blobs import BlobVanished, confirm_blobs
from app.db.repositories.execution import Claim
from app.db.repositories.outputs import (
    NewArtifact,
    NewEvaluation,
    NewVersion,
    drop_points,
    insert_artifacts,
    insert_version,
    replace_evaluations,
)
from app.db.tables import Job
from app.db.transition import transition
from app.dispatch.endings import close_attempt
from app.domain.clock import format_time
from app.domain.models import FileFact
from app.domain.native_tensors import is_old_buffer
from app.domain.specs import ResolvedSpec
from app.domain.states import Actor, AttemptOutcome, JobStatus
from app.security.safetensors_check import read_header
from workers.attempt.journal import Journal
from workers.attempt.patient_store import PatientStore, upload_failure
from workers.attempt.storage_quota import require_room
from workers.runtime.context import MethodResult, Stopped
from workers.runtime.results import (
    CHECKPOINT_FOLDER,
    StageRow,
    read_manifest,
    result_json,
    summary_rows,
)


class CancelWins(Exception):
    """The job was cancelled before its success was committed."""


@dataclass(frozen=True, slots=True)
class Publication:
    """What the last transaction needs besides the stored files."""

    spec: ResolvedSpec
    result: MethodResult
    measured: dict[str, Any]
    usage: dict[str, Any]


class Publisher:
    """Uploads and commits the result of one attempt."""

    def __init__(self, storage: PatientStore, journal: Journal, claim: Claim) -> None:
        self._storage = storage
        self._journal = journal
        self._claim = claim

    def upload(
        self,
        out_dir: Path,
        *,
        should_stop: Callable[[], bool],
        on_progress: Callable[[int, int, str], None],
    ) -> list[NewArtifact]:
        """Store every file of the manifest. Files that the store has already cost one look."""
        listed = read_manifest(out_dir)
        require_room(self._journal, self._claim, [path for _, path in listed])
        total = sum(file.size_bytes for file, _ in listed)
        done, artifacts = 0, []
        for file, path in listed:
            if should_stop():
                raise Stopped
            blob = self._storage.keep(path, file.name)
            artifacts.append(NewArtifact(file.name, file.type, file.media_type, blob))
            done += file.size_bytes
            on_progress(done, total, file.name)
        return artifacts

    def commit(
        self, publication: Publication, artifacts: Sequence[NewArtifact], out_dir: Path
    ) -> None:
        """Insert all rows of the result and move the job to succeeded, or do nothing at all.

        Raises
        ------
        CancelWins
            When somebody asked for a cancel in the meantime.
        JobFailure
            `upload_failed` when stored bytes are gone again.
        """
        version = describe_version(publication.spec, artifacts, out_dir)

        def write(session: Session, job: Job, now: datetime) -> None:
            if job.status != JobStatus.RUNNING or job.stop_requested == "cancel":
                raise CancelWins
            confirm_blobs(session, job.project_id, [a.blob for a in artifacts], now=now)
            kept = version is not None and version.register_as is not None
            insert_artifacts(session, job, artifacts, kept=kept, now=now)
            if version is not None:
                insert_version(session, job, version, now=now)
            rows = summary_rows(publication.result.summary)
            write_evaluations(session, job, rows, publication.spec, now)
            drop_points(session, job, keep_steps=publication.spec.outputs.keep_checkpoints, now=now)
            self._succeed(session, job, publication, len(artifacts), now)
            crash_point("committing", self._claim.attempt)

        crash_point("uploaded", self._claim.attempt)
        try:
            self._journal.patiently(lambda: self._journal.close(write))
        except BlobVanished as exc:
            raise upload_failure("the result") from exc
        crash_point("committed", self._claim.attempt)

    def _succeed(
        self, session: Session, job: Job, publication: Publication, files: int, now: datetime
    ) -> None:
        append_event(session, job.id, "artifact.created", now=now, data={"count": files})
        moved = transition(
            session,
            job.id,
            JobStatus.RUNNING,
            JobStatus.SUCCEEDED,
            Actor.WORKER,
            now=now,
            where=(Job.fence == self._claim.fence,),
            values={
                # A pause that comes when the work is done has nothing left to stop.
                "stop_requested": None,
                "result": result_json(publication.result, self._journal.warnings),
                "usage": publication.usage,
                "error": None,
                # Steps and message were those of the last file that was uploaded.
                "progress": {"fraction": 1.0, "message": None, "updated_at": format_time(now)},
            },
        )
        if not moved:
            raise CancelWins
        close_attempt(
            session, job, outcome=AttemptOutcome.SUCCEEDED, now=now, columns=publication.measured
        )


def write_evaluations(
    session: Session, job: Job, rows: Sequence[StageRow], spec: ResolvedSpec, now: datetime
) -> None:
    """Write evaluation rows in place of earlier ones of the same stages, with their event."""
    if not rows:
        return
    evaluations = [_evaluation(row) for row in rows]
    replace_evaluations(session, job, evaluations, version=spec.method_version, now=now)
    stages = sorted({row.stage for row in rows})
    data = {"stages": stages, "rows": len(rows)}
    append_event(session, job.id, "evaluation.completed", now=now, data=data)


def describe_version(
    spec: ResolvedSpec, artifacts: Sequence[NewArtifact], out_dir: Path
) -> NewVersion | None:
    """Describe the edited model; None for an output that is no model directory."""
    prefix = f"{CHECKPOINT_FOLDER}/"
    members = [artifact for artifact in artifacts if artifact.name.startswith(prefix)]
    config_path = out_dir / CHECKPOINT_FOLDER / "config.json"
    if not members or not config_path.is_file():
        return None
    config = json.loads(config_path.read_text(encoding="utf-8"))
    files = [
        FileFact(a.name.removeprefix(prefix), a.blob.size_bytes, a.blob.sha256) for a in members
    ]
    params, dtype = _count_parameters(out_dir / CHECKPOINT_FOLDER, files)
    return NewVersion(
        model_type=str(config.get("model_type", "")),
        architecture=next(iter(config.get("architectures") or ()), None),
        params=params,
        dtype=dtype,
        files=files,
        base_source={key: spec.model[key] for key in spec.model if key != "files"},
        register_as=spec.outputs.register_as,
    )


def _count_parameters(folder: Path, files: Sequence[FileFact]) -> tuple[int, str | None]:
    """Count stored parameters, masks of old files left out; name the dtype that most have."""
    by_dtype: dict[str, int] = {}
    for file in files:
        if not file.path.endswith(".safetensors"):
            continue
        path = folder / file.path
        header = read_header(_range_reader(path), file.size_bytes, name=file.path)
        for name, tensor in header.tensors.items():
            if is_old_buffer(name):
                continue
            count = 1
            for size in tensor.shape:
                count *= size
            by_dtype[tensor.dtype] = by_dtype.get(tensor.dtype, 0) + count
    return sum(by_dtype.values()), max(by_dtype, key=lambda name: by_dtype[name], default=None)


def _range_reader(path: Path) -> Callable[[int, int], bytes]:
    def read(start: int, end: int) -> bytes:
        with path.open("rb") as handle:
            handle.seek(start)
            return handle.read(end - start)

    return read


def _evaluation(row: StageRow) -> NewEvaluation:
    low, high = row.ci95 or (None, None)
    return NewEvaluation(
        stage=row.stage,
        benchmark=row.benchmark,
        metric=row.metric,
        group_key=row.group or "",
        value=row.value,
        n=row.n,
        unit=row.unit,
        ideal=row.ideal,
        ci_low=low,
        ci_high=high,
    )
