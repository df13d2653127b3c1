"""What becomes of a job whose attempt has ended."""

from dataclasses import dataclass

from app.domain.errors import JobErrorCode
from app.domain.states import AttemptOutcome, JobStatus, StopReason

# A host that runs out of memory twice for the same job will do so a third time; endless loops
# of kill and redelivery are a known failure of queues that count per message.
HOST_OOM_BUDGET = 2

_GIVEN_BACK = frozenset({AttemptOutcome.PAUSED, AttemptOutcome.DRAINED, AttemptOutcome.RELEASED})
_COUNTED = frozenset({AttemptOutcome.FAILED, AttemptOutcome.LOST})


@dataclass(frozen=True, slots=True)
class JobBudget:
    """What a job has used up before this attempt ended, and what it may."""

    failures: int
    max_attempts: int
    stop_requested: StopReason | None
    host_oom_failures: int


@dataclass(frozen=True, slots=True)
class Fate:
    """Where the job goes, and its count of failed attempts from now on."""

    status: JobStatus
    failures: int


def fate_after(
    outcome: AttemptOutcome, budget: JobBudget, *, code: JobErrorCode | None, retryable: bool
) -> Fate:
    """Decide what an attempt that did not succeed makes of its job.

    A cancel wins over everything. An attempt that gave its job back costs nothing: the job waits
    in the queue, or paused where that is still wanted. Failed and lost ones are repeated while
    they are retryable and attempts are left; a wanted pause then waits for the next attempt.
    """
    failures = budget.failures + (outcome in _COUNTED)
    if budget.stop_requested is StopReason.CANCEL:
        return Fate(JobStatus.CANCELLED, failures)
    if outcome in _GIVEN_BACK:
        pausing = budget.stop_requested is StopReason.PAUSE
        return Fate(JobStatus.PAUSED if pausing else JobStatus.QUEUED, failures)
    if outcome is AttemptOutcome.CANCELLED:
        return Fate(JobStatus.CANCELLED, failures)
    spent = failures >= budget.max_attempts
    if code is JobErrorCode.OOM_HOST:
        spent = spent or budget.host_oom_failures + 1 >= HOST_OOM_BUDGET
    again = retryable and not spent
    return Fate(JobStatus.QUEUED if again else JobStatus.FAILED, failures)
