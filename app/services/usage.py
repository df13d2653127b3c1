"""What a project has used in a period."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from app.db.repositories.usage import UsageGroup, UsagePeriod, UsageRepository
from app.db.uow import UnitOfWork
from app.domain.errors import Finding, ValidationFailed
from app.schemas.usage import MAX_DAYS

DEFAULT_PERIOD = timedelta(days=30)
LONGEST_PERIOD = timedelta(days=MAX_DAYS)


@dataclass(slots=True)
class Use:
    """What was used; jobs and attempts count when they end."""

    jobs: dict[str, int] = field(default_factory=dict)
    attempts: int = 0
    wall_s: float = 0.0
    accelerator_s: float = 0.0
    stored_bytes: int = 0


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Use by group, and in all; a group is a day, a method's name, a key's id or None."""

    period: UsagePeriod
    group: UsageGroup
    total: Use
    groups: dict[Any, Use]


def report_usage(
    u: UnitOfWork, group: UsageGroup, *, since: datetime | None, until: datetime | None
) -> UsageReport:
    """Sum up the use of the caller's project.

    Raises
    ------
    ValidationFailed
        For a period that ends before it begins, or is longer than a year.
    """
    period = _period(since, until, now=u.now)
    found = _collect(UsageRepository(u.session, u.principal.project_id), group, period)
    ordered = dict(sorted(found.items(), key=lambda item: (item[0] is None, str(item[0]))))
    return UsageReport(period, group, _sum(found.values()), ordered)


def _collect(usage: UsageRepository, group: UsageGroup, period: UsagePeriod) -> dict[Any, Use]:
    found: dict[Any, Use] = defaultdict(Use)
    for key, status, count in usage.jobs_by_outcome(group, period):
        found[key].jobs[status] = count
    for key, use in usage.attempts(group, period).items():
        found[key].attempts = use.attempts
        found[key].wall_s = use.wall_s
        found[key].accelerator_s = use.accelerator_s
    for key, size in usage.stored_bytes(group, period).items():
        found[key].stored_bytes = size
    return found


def _sum(parts: Iterable[Use]) -> Use:
    total = Use()
    for part in parts:
        for status, count in part.jobs.items():
            total.jobs[status] = total.jobs.get(status, 0) + count
        total.attempts += part.attempts
        total.wall_s += part.wall_s
        total.accelerator_s += part.accelerator_s
        total.stored_bytes += part.stored_bytes
    return total


def _period(since: datetime | None, until: datetime | None, *, now: datetime) -> UsagePeriod:
    end = until.astimezone(UTC) if until else now
    try:
        begin = since.astimezone(UTC) if since else end - DEFAULT_PERIOD
    except OverflowError as exc:
        raise _refused("to", "Give a time after the year 1.") from exc
    if begin >= end:
        raise _refused("from", "Give a time before `to`; without `to`, one in the past.")
    if end - begin > LONGEST_PERIOD:
        raise _refused("from", f"Ask for at most {MAX_DAYS} days at a time.")
    return UsagePeriod(begin, end)


def _refused(name: str, message: str) -> ValidationFailed:
    return ValidationFailed(message, findings=[Finding(f"query:{name}", "bad_period", message)])
