"""What a failed job says is for users to read: secrets are taken out of it."""

from app.domain.errors import JobErrorCode, JobFailure
from workers.attempt.outcomes import failed

KEY = "dbk_abcdEFGH_" + "k" * 43


def test_error_of_a_job_shows_no_secret() -> None:
    failure = JobFailure(
        JobErrorCode.DEPENDENCY_FAILED,
        "s3://b?X-Amz-Signature=0f0f0f refused",
        f"Do not send {KEY} again.",
        retryable=True,
    )

    shown = failed(failure).failure

    assert shown is not None
    assert "0f0f0f" not in shown.message
    assert KEY not in shown.hint
    assert (shown.code, shown.retryable) == (failure.code, True)
    assert "refused" in shown.message
