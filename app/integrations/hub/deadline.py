"""A time by which all requests of one inspection must be done."""

import time
from collections.abc import Callable

from app.domain.errors import Unavailable

_RETRY_AFTER_S = 10


class Deadline:
    """Time left of a budget, over several requests and threads."""

    def __init__(self, budget_s: float, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._end = monotonic() + budget_s
        self.budget_s = budget_s

    def remaining_s(self) -> float:
        """Seconds left; raises `Unavailable` where there are none."""
        left = self._end - self._monotonic()
        if left <= 0:
            raise too_slow(self.budget_s)
        return left


def too_slow(budget_s: float) -> Unavailable:
    """Make the error for a hub that did not answer in time."""
    return Unavailable(
        f"The model hub did not answer within {budget_s:g} s. Send the request again later.",
        retry_after_s=_RETRY_AFTER_S,
    )
