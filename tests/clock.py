"""Time that only the test moves."""

from datetime import UTC, datetime, timedelta

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class FakeClock:
    """A clock that moves when told to."""

    def __init__(self) -> None:
        self._moment = BEGIN
        self._seconds = 1000.0

    def now(self) -> datetime:
        return self._moment

    def monotonic(self) -> float:
        return self._seconds

    def advance(self, seconds: float) -> None:
        self._moment += timedelta(seconds=seconds)
        self._seconds += seconds

    def jump(self, seconds: float) -> None:
        """Move the wall clock only, as a laptop does that wakes up."""
        self._moment += timedelta(seconds=seconds)
