import pytest

from app.domain.errors import JobErrorCode
from app.domain.retries import JobBudget, fate_after
from app.domain.states import AttemptOutcome, JobStatus, StopReason


def budget(**changes: object) -> JobBudget:
    values: dict[str, object] = {
        "failures": 0,
        "max_attempts": 3,
        "stop_requested": None,
        "host_oom_failures": 0,
    }
    return JobBudget(**{**values, **changes})  # type: ignore[arg-type]


def test_a_lost_attempt_is_repeated_and_counted() -> None:
    fate = fate_after(AttemptOutcome.LOST, budget(), code=JobErrorCode.WORKER_LOST, retryable=True)

    assert (fate.status, fate.failures) == (JobStatus.QUEUED, 1)


def test_the_last_allowed_attempt_fails_the_job() -> None:
    fate = fate_after(
        AttemptOutcome.LOST, budget(failures=2), code=JobErrorCode.WORKER_LOST, retryable=True
    )

    assert (fate.status, fate.failures) == (JobStatus.FAILED, 3)


def test_an_error_that_would_come_again_fails_the_job_at_once() -> None:
    fate = fate_after(
        AttemptOutcome.FAILED, budget(), code=JobErrorCode.CONFIG_INVALID, retryable=False
    )

    assert fate.status is JobStatus.FAILED


@pytest.mark.parametrize("outcome", [AttemptOutcome.DRAINED, AttemptOutcome.RELEASED])
def test_giving_a_job_back_costs_no_attempt(outcome: AttemptOutcome) -> None:
    fate = fate_after(outcome, budget(failures=2), code=None, retryable=True)

    assert (fate.status, fate.failures) == (JobStatus.QUEUED, 2)


@pytest.mark.parametrize(
    "outcome",
    [AttemptOutcome.FAILED, AttemptOutcome.LOST, AttemptOutcome.DRAINED, AttemptOutcome.CANCELLED],
)
def test_a_wanted_cancel_wins_over_every_outcome(outcome: AttemptOutcome) -> None:
    fate = fate_after(outcome, budget(stop_requested=StopReason.CANCEL), code=None, retryable=True)

    assert fate.status is JobStatus.CANCELLED


def test_a_host_that_ran_out_of_memory_twice_is_not_tried_a_third_time() -> None:
    first = fate_after(
        AttemptOutcome.LOST, budget(max_attempts=5), code=JobErrorCode.OOM_HOST, retryable=True
    )
    second = fate_after(
        AttemptOutcome.LOST,
        budget(max_attempts=5, failures=1, host_oom_failures=1),
        code=JobErrorCode.OOM_HOST,
        retryable=True,
    )

    assert (first.status, second.status) == (JobStatus.QUEUED, JobStatus.FAILED)


GIVEN_BACK = [AttemptOutcome.PAUSED, AttemptOutcome.DRAINED, AttemptOutcome.RELEASED]


@pytest.mark.parametrize("outcome", GIVEN_BACK)
def test_a_job_given_back_is_paused_where_that_is_wanted(outcome: AttemptOutcome) -> None:
    wanted = budget(failures=2, stop_requested=StopReason.PAUSE)

    fate = fate_after(outcome, wanted, code=None, retryable=True)

    assert (fate.status, fate.failures) == (JobStatus.PAUSED, 2)


def test_a_pause_that_was_withdrawn_puts_the_job_back_into_the_queue() -> None:
    fate = fate_after(AttemptOutcome.PAUSED, budget(), code=None, retryable=True)

    assert (fate.status, fate.failures) == (JobStatus.QUEUED, 0)


def test_an_attempt_that_fails_before_it_could_pause_is_repeated_first() -> None:
    wanted = budget(stop_requested=StopReason.PAUSE)

    fate = fate_after(AttemptOutcome.LOST, wanted, code=JobErrorCode.WORKER_LOST, retryable=True)

    assert (fate.status, fate.failures) == (JobStatus.QUEUED, 1)
