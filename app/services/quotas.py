"""What a project may use, what it uses, and whether one more job fits."""

import math
import time
from dataclasses import dataclass
from datetime import timedelta
from weakref import WeakKeyDictionary

from app.db.repositories.projects import CPU_DEVICE, count_waiting_of_all
from app.db.repositories.workers import accelerator_classes
from app.db.session import Database
from app.db.tables import Project
from app.db.uow import UnitOfWork
from app.domain.errors import ProjectSuspended, QueueFull, QuotaExceeded
from app.settings import Settings

QUEUE_FULL_RETRY_S = 60
ACCELERATOR_WINDOW = timedelta(days=1)
# To count all that wait reads an index of all of them: 4 ms for 10,000. What was counted is
# believed for a second, unless the limit is nearer than what all processes could add meanwhile.
COUNT_BELIEVED_S = 1.0
SAFE_DISTANCE = 1000


@dataclass(frozen=True, slots=True)
class Quota:
    """One quota; `limit` is None where there is none."""

    limit: int | None
    used: int

    @property
    def is_used_up(self) -> bool:
        """Whether nothing is left."""
        return self.limit is not None and self.used >= self.limit


def quotas_of(u: UnitOfWork, project: Project) -> dict[str, Quota]:
    """Tell every quota of the caller's project and what is used of it."""
    return {
        "max_queued": Quota(project.max_queued, u.project.count_waiting()),
        "max_running": Quota(project.max_running, u.project.count_running()),
        "max_storage_bytes": Quota(project.max_storage_bytes, u.project.stored_bytes()),
        "max_gpu_s_per_day": Quota(project.max_gpu_s_per_day, _accelerator_seconds(u)),
    }


def require_room(
    u: UnitOfWork, settings: Settings, *, device_class: str, priority: int, output_bytes: int
) -> int:
    """Refuse one more job that would not fit; exact, since the project is locked.

    Returns how many jobs of the project would run before it.

    Raises
    ------
    ProjectSuspended, QuotaExceeded, QueueFull
        For the first limit that stands against it.
    """
    project = u.project.lock()
    if project.suspended:
        raise ProjectSuspended(
            "The operator has suspended this project: jobs that wait stay queued, and no new ones "
            "are taken. Ask the operator of the service."
        )
    waiting, before = u.project.count_line(device_class, priority)
    if waiting >= project.max_queued:
        raise QuotaExceeded(
            f"The quota max_queued of this project is {project.max_queued} waiting jobs, and all "
            "are there: wait until some have started, or cancel some.",
            retry_after_s=QUEUE_FULL_RETRY_S,
        )
    if _waiting_of_all(u, settings.max_queued_total) >= settings.max_queued_total:
        raise QueueFull(
            f"The service holds {settings.max_queued_total} waiting jobs, its limit: "
            "send the request again later.",
            retry_after_s=QUEUE_FULL_RETRY_S,
        )
    _require_storage(u, project, output_bytes)
    _require_accelerator_time(u, project, device_class)
    return before


@dataclass(frozen=True, slots=True)
class _Count:
    jobs: int
    at: float

    def is_good_for(self, limit: int) -> bool:
        is_fresh = time.monotonic() - self.at < COUNT_BELIEVED_S
        return is_fresh and self.jobs + SAFE_DISTANCE < limit


_last_counts: WeakKeyDictionary[Database, _Count] = WeakKeyDictionary()


def _waiting_of_all(u: UnitOfWork, limit: int) -> int:
    """Count the waiting jobs of the service: exactly, where the limit may be reached."""
    count = _last_counts.get(u.database)
    if count is None or not count.is_good_for(limit):
        asked_at = time.monotonic()
        count = _Count(count_waiting_of_all(u.session), asked_at)
        _last_counts[u.database] = count
    return count.jobs


def _require_storage(u: UnitOfWork, project: Project, output_bytes: int) -> None:
    limit = project.max_storage_bytes
    if limit is None:
        return
    quota = Quota(limit, u.project.stored_bytes())
    if quota.is_used_up or quota.used + output_bytes > limit:
        # No Retry-After: room comes from deleting, not from waiting.
        raise QuotaExceeded(
            f"The quota max_storage_bytes of this project is {limit} bytes. {quota.used} are used, "
            f"and this job is estimated to store {output_bytes} more: delete jobs that are no "
            "longer needed, or ask the operator for more. Bytes of deleted jobs count until they "
            "are freed."
        )


def _require_accelerator_time(u: UnitOfWork, project: Project, device_class: str) -> None:
    limit = project.max_gpu_s_per_day
    if limit is None or not _may_use_accelerator(u, device_class):
        return
    quota = Quota(limit, _accelerator_seconds(u))
    if quota.is_used_up:
        raise QuotaExceeded(
            f"The quota max_gpu_s_per_day of this project is {limit} seconds on an accelerator in "
            f"24 hours, and {quota.used} are used: send the job again later, or for another device "
            "class."
        )


def _may_use_accelerator(u: UnitOfWork, device_class: str) -> bool:
    """Tell by the name of the class, and by who serves it: a GPU worker may serve `cpu`, too."""
    return device_class != CPU_DEVICE or device_class in accelerator_classes(u.session)


def _accelerator_seconds(u: UnitOfWork) -> int:
    since = u.now - ACCELERATOR_WINDOW
    return math.ceil(u.project.accelerator_seconds(since=since, now=u.now))
