"""What an attempt's end means for its job."""

from dataclasses import replace

from app.dispatch.endings import Ending
from app.domain.errors import JobErrorCode, JobFailure
from app.domain.states import AttemptOutcome, Phase
from app.redaction import redact
from workers.heartbeat import Limits, StopCause

_PLAIN = {
    StopCause.CANCEL: AttemptOutcome.CANCELLED,
    StopCause.PAUSE: AttemptOutcome.PAUSED,
    StopCause.DRAIN: AttemptOutcome.DRAINED,
    StopCause.OUTAGE: AttemptOutcome.RELEASED,
}


def ending_for_stop(cause: StopCause, limits: Limits, phase: Phase) -> Ending:
    """Describe the end of an attempt that was stopped."""
    outcome = _PLAIN.get(cause)
    if outcome is not None:
        return Ending(outcome)
    if cause is StopCause.TIMEOUT:
        message = f"The attempt ran longer than {limits.max_runtime_s:g} s, its limit."
    else:
        message = f"No progress for {limits.stall_timeout_s:g} s while {phase}."
    return failed(
        JobFailure(
            JobErrorCode.TIMEOUT,
            message,
            "Raise resources.max_runtime_s, or make the job smaller: fewer prompts, a smaller "
            "model, a larger device class.",
        )
    )


def failed(failure: JobFailure) -> Ending:
    """Describe the end of an attempt that met a failure. Its words are for users to read."""
    shown = replace(failure, message=redact(failure.message), hint=redact(failure.hint))
    return Ending(AttemptOutcome.FAILED, shown)
