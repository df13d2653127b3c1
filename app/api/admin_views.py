"""Projects, workers and queues as response bodies."""

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from app.api.key_views import new_key_answer
from app.db.tables import Project, Worker
from app.domain.ids import IdPrefix, format_id
from app.schemas.admin import NewProjectBody, ProjectDetail, QueueBody, WorkerBody
from app.schemas.keys import NewKeyBody
from app.services.fleet import Queue
from app.services.idempotency import Answer
from app.services.project_admin import NewProject


def project_detail(row: Project) -> ProjectDetail:
    """Show a project with its limits."""
    return ProjectDetail(
        id=format_id(IdPrefix.PROJECT, row.id),
        name=row.name,
        weight=row.weight,
        max_running=row.max_running,
        max_queued=row.max_queued,
        max_storage_bytes=row.max_storage_bytes,
        max_gpu_s_per_day=row.max_gpu_s_per_day,
        retention_days=row.retention_days,
        suspended=row.suspended,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def new_project_answer(made: NewProject) -> Answer:
    """Show a new project and its key, but keep the answer for repetitions without the secret."""
    project, key = project_detail(made.row), new_key_answer(made.key)
    shown = NewProjectBody(project=project, key=NewKeyBody(**key.body))
    kept = NewProjectBody(project=project, key=NewKeyBody(**(key.stored_body or {})))
    return Answer(
        201,
        shown.model_dump(mode="json"),
        f"/v1/admin/projects/{project.id}",
        made.row.id,
        stored_body=kept.model_dump(mode="json"),
    )


def worker_body(row: Worker, held: Mapping[UUID, UUID]) -> WorkerBody:
    """Show a worker and the job it holds."""
    job_id = held.get(row.id)
    return WorkerBody(
        id=format_id(IdPrefix.WORKER, row.id),
        host=row.host,
        pid=row.pid,
        classes=row.classes,
        device=row.device,
        gpu_bytes=row.gpu_bytes,
        host_bytes=row.host_bytes,
        disk_free_bytes=row.disk_free_bytes,
        disk_low=row.disk_low,
        versions=row.versions,
        state=row.state,
        draining=row.drain_requested or row.state == "draining",
        current_job_id=format_id(IdPrefix.JOB, job_id) if job_id else None,
        last_seen_at=row.last_seen_at,
        started_at=row.created_at,
    )


def queue_body(queue: Queue, now: datetime) -> QueueBody:
    """Show a queue."""
    depth = queue.depth
    oldest = depth.oldest_queued_at
    return QueueBody(
        device_class=queue.device_class,
        queued=depth.queued,
        dispatched=depth.dispatched,
        running=depth.running,
        oldest_age_s=max(0.0, (now - oldest).total_seconds()) if oldest else None,
        workers=queue.workers,
        idle_slots=queue.idle_slots,
    )
