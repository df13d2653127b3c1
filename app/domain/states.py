"""The life of a job as one table. Nothing else knows which change of status is allowed."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from app.domain.errors import InvalidState


class JobStatus(StrEnum):
    """Where a job stands."""

    PENDING = "pending"
    QUEUED = "queued"
    RUNNING = "running"
    CANCELLING = "cancelling"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Phase(StrEnum):
    """What a running job is doing, in this order."""

    PREPARING = "preparing"
    EVALUATING_BEFORE = "evaluating_before"
    DEBIASING = "debiasing"
    EVALUATING_AFTER = "evaluating_after"
    PACKAGING = "packaging"
    UPLOADING = "uploading"


class StopReason(StrEnum):
    """What a client asked a running job to do instead of finishing."""

    CANCEL = "cancel"
    PAUSE = "pause"


class AttemptOutcome(StrEnum):
    """How an attempt ended. Drained, paused and released ones do not count as failures."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DRAINED = "drained"
    PAUSED = "paused"
    RELEASED = "released"
    LOST = "lost"
    FENCED = "fenced"


class Actor(StrEnum):
    """Who may change a status."""

    API = "api"
    WORKER = "worker"
    REAPER = "reaper"
    MAINTENANCE = "maintenance"


TERMINAL = frozenset({JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED})
LEASED = frozenset({JobStatus.RUNNING, JobStatus.CANCELLING})


@dataclass(frozen=True, slots=True)
class Transition:
    """One allowed change: the event that records it, and who may make it."""

    event: str
    by: frozenset[Actor]


def _by(event: str, *actors: Actor) -> Transition:
    return Transition(event, frozenset(actors))


_S = JobStatus
TRANSITIONS: Mapping[tuple[JobStatus, JobStatus], Transition] = MappingProxyType(
    {
        (_S.PENDING, _S.QUEUED): _by("job.queued", Actor.MAINTENANCE, Actor.WORKER),
        (_S.PENDING, _S.CANCELLED): _by(
            "job.cancelled", Actor.API, Actor.MAINTENANCE, Actor.WORKER, Actor.REAPER
        ),
        (_S.QUEUED, _S.RUNNING): _by("job.claimed", Actor.WORKER),
        (_S.QUEUED, _S.CANCELLED): _by("job.cancelled", Actor.API),
        (_S.RUNNING, _S.CANCELLING): _by("job.cancelling", Actor.API),
        (_S.RUNNING, _S.CANCELLED): _by("job.cancelled", Actor.WORKER, Actor.REAPER),
        (_S.RUNNING, _S.PAUSED): _by("job.paused", Actor.WORKER),
        (_S.RUNNING, _S.SUCCEEDED): _by("job.succeeded", Actor.WORKER),
        (_S.RUNNING, _S.FAILED): _by("job.failed", Actor.WORKER, Actor.REAPER),
        (_S.RUNNING, _S.QUEUED): _by("job.retry_scheduled", Actor.WORKER, Actor.REAPER),
        (_S.CANCELLING, _S.CANCELLED): _by("job.cancelled", Actor.WORKER, Actor.REAPER),
        (_S.PAUSED, _S.QUEUED): _by("job.resumed", Actor.API),
        (_S.PAUSED, _S.CANCELLED): _by("job.cancelled", Actor.API, Actor.MAINTENANCE),
        (_S.FAILED, _S.QUEUED): _by("job.queued", Actor.API),
        (_S.CANCELLED, _S.QUEUED): _by("job.queued", Actor.API),
    }
)


def check_transition(source: JobStatus, target: JobStatus, by: Actor) -> Transition:
    """Return the table's entry for this change.

    Raises
    ------
    InvalidState
        When the table does not allow `by` to move a job from `source` to `target`.
    """
    transition = TRANSITIONS.get((source, target))
    if transition is None or by not in transition.by:
        raise InvalidState(f"A job that is {source} cannot become {target} here.")
    return transition
