"""The workers and queues of the whole service, as their operator sees them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from app.db.repositories.execution import live_workers
from app.db.repositories.operations import QueueDepth, queue_depths
from app.db.repositories.workers import (
    ask_to_drain,
    find_worker,
    jobs_of_workers,
    page_of_workers,
)
from app.db.tables import Worker
from app.db.uow import UnitOfWork
from app.dispatch.timing import Timing
from app.domain.audit import AuditAction
from app.domain.errors import InvalidState, NotFound
from app.domain.ids import IdPrefix, format_id
from app.services.audit import record
from app.settings import Settings


@dataclass(frozen=True, slots=True)
class Queue:
    """One device class: its jobs, and the live workers that serve it."""

    device_class: str
    depth: QueueDepth
    workers: int
    idle_slots: int


def list_workers(
    u: UnitOfWork, states: Sequence[str], *, before: UUID | None, limit: int
) -> Sequence[Worker]:
    """List workers, newest first."""
    return page_of_workers(u.session, states, before=before, limit=limit)


def held_jobs(u: UnitOfWork, workers: Sequence[Worker]) -> Mapping[UUID, UUID]:
    """Tell which job each worker holds."""
    return jobs_of_workers(u.session, [worker.id for worker in workers])


def drain_worker(u: UnitOfWork, worker_id: UUID) -> Worker:
    """Ask a worker to end as it would on SIGTERM; from now on it is given no jobs. Repeatable.

    Raises
    ------
    NotFound, InvalidState
        When there is no such worker, or it has ended.
    """
    if not ask_to_drain(u.session, worker_id):
        if find_worker(u.session, worker_id) is None:
            raise NotFound("There is no such worker.")
        raise InvalidState("The worker has stopped already; there is nothing to drain.")
    record(u, AuditAction.WORKER_DRAINED, target=format_id(IdPrefix.WORKER, worker_id))
    worker = find_worker(u.session, worker_id)
    if worker is None:
        raise RuntimeError("a worker whose row was just changed is not there")
    return worker


def list_queues(u: UnitOfWork, settings: Settings) -> list[Queue]:
    """Describe every device class of the service, and those that only old jobs name."""
    timeout = timedelta(seconds=Timing.from_lease(settings.lease_ttl_s).worker_timeout_s)
    workers = live_workers(u.session, seen_since=u.now - timeout)
    depths = queue_depths(u.session)
    names = dict.fromkeys((*settings.device_classes, *sorted(depths)))
    return [
        Queue(
            device_class=name,
            depth=depths.get(name, QueueDepth()),
            workers=sum(name in classes for classes, _ in workers),
            idle_slots=sum(idle for classes, idle in workers if name in classes),
        )
        for name in names
    ]
