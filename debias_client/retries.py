"""When to try a call again, and after how long."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from debias_client.errors import ApiError, ConnectionFailed

Failure = ApiError | ConnectionFailed

# Answers by which a service or a proxy says "not now": they say nothing about the request.
TRANSIENT_STATUSES = frozenset({429, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Capped exponential back-off with full jitter.

    The n-th wait is uniform between 0 and min(`cap_s`, `base_s` * 2**(n-1)), and at least what
    the service asks for in `Retry-After`; when that is above `max_retry_after_s`, the failure
    is reported instead.
    """

    # Five attempts wait 7.5 s at most, which covers the restart of a service.
    max_attempts: int = 5
    base_s: float = 0.5
    cap_s: float = 8.0
    max_retry_after_s: float = 60.0

    def delay_s(
        self, failure: Failure, attempt: int, *, jitter: Callable[[], float]
    ) -> float | None:
        """Give the wait after failed attempt number `attempt`, or None to give up."""
        if attempt >= self.max_attempts or not is_transient(failure):
            return None
        asked_s = failure.retry_after_s if isinstance(failure, ApiError) else None
        if asked_s is not None and asked_s > self.max_retry_after_s:
            return None
        backoff_s = jitter() * min(self.cap_s, self.base_s * 2.0 ** (attempt - 1))
        return max(asked_s or 0.0, backoff_s)


def is_transient(failure: Failure) -> bool:
    """Tell whether the same call may succeed a little later."""
    if isinstance(failure, ConnectionFailed):
        return True
    if failure.code == "quota_exceeded":
        # A used-up quota comes back by itself only when the service says when.
        return failure.retry_after_s is not None
    return failure.status in TRANSIENT_STATUSES


def parse_retry_after(value: str | None, *, now: Callable[[], datetime]) -> float | None:
    """Read a `Retry-After` header, seconds or a date; None when it is absent or unreadable."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        at = parsedate_to_datetime(value)
    except ValueError:
        return None
    aware = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0.0, (aware - now()).total_seconds())
