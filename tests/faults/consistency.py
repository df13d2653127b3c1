"""What must hold for every job that has ended, however often its processes died."""

from collections.abc import Iterator

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.tables import (
    Artifact,
    EvaluationResult,
    Job,
    JobAttempt,
    JobCheckpoint,
    JobEvent,
    ModelVersion,
)

ARTIFACTS = frozenset({
    "checkpoint/config.json", "checkpoint/model.safetensors", "plots/steps.json",
    "plots/steps.png", "report.html", "report.json", "request.json",
    "resolved_spec.json",
})  # fmt: skip
TERMINAL_EVENTS = frozenset({"job.succeeded", "job.failed", "job.cancelled"})
LAST_OUTCOMES = {
    "succeeded": {"succeeded"},
    "failed": {"failed", "lost"},
    # A job that is cancelled while it waits for its next try has any outcome of a try before it.
    "cancelled": {"cancelled", "failed", "lost", "drained", "released"},
}


def violations(session: Session, job: Job) -> Iterator[str]:
    """Say what is wrong with the rows of an ended job; nothing when it was done exactly once."""
    if job.status not in LAST_OUTCOMES:
        yield f"is {job.status}"
        return
    if (job.dispatched_at, job.lease_expires_at) != (None, None):
        yield "still holds a slot or a lease"
    yield from _events(session, job)
    yield from _attempts(session, job)
    yield from _effects(session, job)


def _events(session: Session, job: Job) -> Iterator[str]:
    rows = session.execute(
        sa.select(JobEvent.seq, JobEvent.type)
        .where(JobEvent.job_id == job.id)
        .order_by(JobEvent.seq)
    ).all()
    numbers, types = [row.seq for row in rows], [row.type for row in rows]
    if numbers != list(range(1, job.last_seq + 1)):
        yield f"has gaps in its events: {numbers}"
    if [name for name in types if name in TERMINAL_EVENTS] != [f"job.{job.status}"]:
        yield f"is {job.status} with the events {types}"
    if types[-1:] != [f"job.{job.status}"]:
        yield f"goes on after its end: {types}"


def _attempts(session: Session, job: Job) -> Iterator[str]:
    rows = session.execute(
        sa.select(JobAttempt.number, JobAttempt.fence, JobAttempt.outcome)
        .where(JobAttempt.job_id == job.id)
        .order_by(JobAttempt.number)
    ).all()
    counted = list(range(1, job.attempt + 1))
    if [row.number for row in rows] != counted or [row.fence for row in rows] != counted:
        yield f"has {job.attempt} attempts under fence {job.fence}, but the rows {rows}"
    outcomes = [row.outcome for row in rows]
    if None in outcomes or "succeeded" in outcomes[:-1]:
        yield f"has attempts that end like this: {outcomes}"
    if outcomes and outcomes[-1] not in LAST_OUTCOMES[job.status]:
        yield f"is {job.status} after an attempt that was {outcomes[-1]}"


def _effects(session: Session, job: Job) -> Iterator[str]:
    succeeded = job.status == "succeeded"
    artifacts = session.execute(
        sa.select(Artifact.name, Artifact.fence).where(Artifact.job_id == job.id)
    ).all()
    expected = [(name, job.fence) for name in sorted(ARTIFACTS)] if succeeded else []
    if sorted(tuple(row) for row in artifacts) != expected:
        yield f"is {job.status} with the artifacts {artifacts}"
    versions = session.execute(
        sa.select(sa.func.count()).where(ModelVersion.created_by_job_id == job.id)
    ).scalar_one()
    if versions != succeeded:
        yield f"is {job.status} with {versions} model versions"
    stages = session.execute(
        sa.select(EvaluationResult.stage).where(EvaluationResult.job_id == job.id)
    ).scalars()
    found = sorted(stages)
    if found not in ([["after", "before"]] if succeeded else [[], ["before"]]):
        yield f"is {job.status} with evaluation rows of the stages {found}"
    if succeeded and _live_checkpoints(session, job):
        yield "keeps checkpoints that nobody asked for"


def _live_checkpoints(session: Session, job: Job) -> int:
    return session.execute(
        sa.select(sa.func.count()).where(
            JobCheckpoint.job_id == job.id, JobCheckpoint.deleted_at.is_(None)
        )
    ).scalar_one()
