"""Whether a soak kept every promise: one line for each that it broke."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.session import Database
from app.db.tables import Artifact, Job, JobAttempt, Model, ModelVersion, OutboxMessage
from app.domain.errors import JobErrorCode
from app.domain.ids import IdPrefix, format_id
from bench.soak.plan import MAX_ATTEMPTS, PlannedJob
from tests.faults.consistency import violations

SAME_BYTES = "checkpoint/model.safetensors"
# How a job of each kind ends, with no regard to kills.
ENDS = {
    "plain": {"succeeded"},
    "recovers": {"succeeded"},
    "crashes": {"succeeded"},
    "fails": {"failed"},
    # The cancel may come too late.
    "cancelled": {"cancelled", "succeeded"},
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the rows say at the end."""

    broken: tuple[str, ...]
    statuses: Mapping[str, int]
    outcomes: Mapping[str, int]
    # Jobs that lost as many processes as they may: failed as promised, and counted.
    spent: int
    # Successes that share seed and config with another one, all with the same bytes.
    repeated: int


def judge(
    database: Database, planned: Sequence[PlannedJob], accepted: Mapping[str, str]
) -> Verdict:
    """Hold all rows against what was sent."""
    broken: list[str] = []
    with database.read() as session:
        jobs = session.execute(sa.select(Job)).scalars().all()
        broken += _lost_or_doubled(jobs, planned, accepted)
        kinds = {job.name: job.kind for job in planned}
        spent = 0
        for job in jobs:
            broken += [f"{job.name}: {text}" for text in violations(session, job)]
            if job.status not in ENDS[kinds[str(job.name)]]:
                if _spent_its_attempts(session, job):
                    spent += 1
                else:
                    broken.append(f"{job.name} ({kinds[str(job.name)]}) is {job.status}")
        broken += _unsent(session)
        broken += _gaps_in_versions(session)
        different, repeated = _compare_bytes(session, jobs)
        broken += different
        outcomes = session.execute(
            sa.select(JobAttempt.outcome, sa.func.count()).group_by(JobAttempt.outcome)
        )
        statuses = Counter(job.status for job in jobs)
        return Verdict(
            tuple(broken),
            statuses,
            {str(name): count for name, count in outcomes},
            spent=spent,
            repeated=repeated,
        )


def _lost_or_doubled(
    jobs: Sequence[Job], planned: Sequence[PlannedJob], accepted: Mapping[str, str]
) -> Iterator[str]:
    rows = Counter(job.name for job in jobs)
    for job in planned:
        if rows[job.name] != 1:
            yield f"{job.name} was sent once and is there {rows[job.name]} times"
    ids = {job.name: format_id(IdPrefix.JOB, job.id) for job in jobs}
    for name, job_id in accepted.items():
        if ids.get(name) != job_id:
            yield f"{name} was answered with {job_id}, and is {ids.get(name)}"


def _spent_its_attempts(session: Session, job: Job) -> bool:
    """Tell whether a job failed because so many of its processes were killed as it has tries."""
    if job.status != "failed" or (job.error or {}).get("code") != JobErrorCode.WORKER_LOST:
        return False
    counted = sa.select(sa.func.count()).where(
        JobAttempt.job_id == job.id, JobAttempt.outcome.in_(("lost", "failed"))
    )
    return session.execute(counted).scalar_one() == MAX_ATTEMPTS


def _unsent(session: Session) -> Iterator[str]:
    """Find side effects that were asked for and not done."""
    waiting = sa.select(OutboxMessage.topic, OutboxMessage.last_error).where(
        OutboxMessage.published_at.is_(None)
    )
    for topic, error in session.execute(waiting):
        yield f"a message of the topic {topic} was never acted on: {error}"


def _gaps_in_versions(session: Session) -> Iterator[str]:
    rows = session.execute(
        sa.select(Model.name, Model.project_id, ModelVersion.number)
        .join(ModelVersion, ModelVersion.model_id == Model.id)
        .order_by(ModelVersion.number)
    )
    numbers: dict[tuple[str, object], list[int]] = defaultdict(list)
    for name, project_id, number in rows:
        numbers[name, project_id].append(number or 0)
    for (name, _), found in numbers.items():
        if found != list(range(1, len(found) + 1)):
            yield f"the versions of the model {name} are numbered {found}"


def _compare_bytes(session: Session, jobs: Sequence[Job]) -> tuple[list[str], int]:
    """Compare the results of jobs with the same seed and config."""
    rows = session.execute(
        sa.select(Artifact.job_id, Artifact.sha256).where(Artifact.name == SAME_BYTES)
    )
    digests = dict(rows.tuples().all())
    groups: dict[str, list[str]] = defaultdict(list)
    for job in jobs:
        if job.id in digests:
            # The weights of the fake method depend on these two alone.
            size = job.resolved_spec["config"]["output_bytes"]
            groups[json.dumps([job.seed, size])].append(digests[job.id])
    different = [
        f"jobs with seed and size {name} have {len(set(found))} different results"
        for name, found in groups.items()
        if len(set(found)) != 1
    ]
    return different, sum(len(found) for found in groups.values() if len(found) > 1)
