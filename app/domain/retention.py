"""How long things are kept after they have ended or lost their last use."""

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class RetentionPeriods:
    """Periods of the whole service; how long artifacts stay is each project's own setting.

    Attributes
    ----------
    grace
        Bytes younger than this are never touched: their row may be on its way. Covers clocks of
        database and store that differ, and uploads that take hours.
    deleted_jobs
        From the deletion of a job by its user to the end of its rows and bytes.
    logs, events
        From the end of a job.
    outbox
        From publication.
    workers
        From the last sign of a worker that stopped or was lost.
    """

    grace: timedelta = timedelta(hours=24)
    deleted_jobs: timedelta = timedelta(days=7)
    logs: timedelta = timedelta(days=30)
    events: timedelta = timedelta(days=180)
    outbox: timedelta = timedelta(hours=24)
    workers: timedelta = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Horizon:
    """The moments before which things are too old, fixed once for a run of the collector."""

    now: datetime
    stored: datetime
    deleted_jobs: datetime
    logs: datetime
    events: datetime
    outbox: datetime
    workers: datetime

    @classmethod
    def at(
        cls, now: datetime, periods: RetentionPeriods, *, oldest_attempt: datetime | None
    ) -> "Horizon":
        """Derive the moments.

        Bytes that await their row belong to an attempt that is alive, since only such a one can
        commit it. So what is older than every living attempt, and the grace on top, awaits none.
        """
        begun = now if oldest_attempt is None else min(now, oldest_attempt)
        return cls(
            now=now,
            stored=begun - periods.grace,
            deleted_jobs=now - periods.deleted_jobs,
            logs=now - periods.logs,
            events=now - periods.events,
            outbox=now - periods.outbox,
            workers=now - periods.workers,
        )


@dataclass(frozen=True, slots=True)
class Freed:
    """What a step of the collector deleted: rows, and bytes of the object store."""

    rows: int = 0
    size_bytes: int = 0

    def __add__(self, other: "Freed") -> "Freed":
        """Add up."""
        return Freed(self.rows + other.rows, self.size_bytes + other.size_bytes)
