"""The workers of the service; they serve all projects."""

from collections.abc import Sequence
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.repositories.projects import CPU_DEVICE
from app.db.tables import IS_LEASED, Job, Worker


def page_of_workers(
    session: Session, states: Sequence[str], *, before: UUID | None, limit: int
) -> Sequence[Worker]:
    """List workers, newest first; an empty `states` lets all through."""
    statement = sa.select(Worker).order_by(Worker.id.desc()).limit(limit)
    if states:
        statement = statement.where(Worker.state.in_(states))
    if before is not None:
        statement = statement.where(Worker.id < before)
    return session.execute(statement).scalars().all()


def find_worker(session: Session, worker_id: UUID) -> Worker | None:
    """Return a worker."""
    return session.get(Worker, worker_id)


def jobs_of_workers(session: Session, worker_ids: Sequence[UUID]) -> dict[UUID, UUID]:
    """Tell which job each of these workers holds at present."""
    statement = sa.select(Job.worker_id, Job.id).where(IS_LEASED, Job.worker_id.in_(worker_ids))
    return {worker_id: job_id for worker_id, job_id in session.execute(statement) if worker_id}


def ask_to_drain(session: Session, worker_id: UUID) -> bool:
    """Ask a worker to take no more jobs and to end; False when it has ended already."""
    asked = session.execute(
        sa.update(Worker)
        .where(Worker.id == worker_id, Worker.state != "stopped")
        .values(drain_requested=True)
        .returning(Worker.id)
    )
    return asked.scalar_one_or_none() is not None


def accelerator_classes(session: Session) -> set[str]:
    """Name the device classes that workers with an accelerator serve."""
    rows = session.execute(
        sa.select(Worker.classes).where(
            Worker.state.in_(("ready", "draining")), Worker.device != CPU_DEVICE
        )
    ).scalars()
    return {name for classes in rows for name in classes}
