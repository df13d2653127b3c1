"""Jobs: create, read, change, pause, cancel, try again, delete."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from app.catalog.registry import MethodRegistry
from app.db.events import append_event
from app.db.repositories.jobs import JobFilters, ListedJob
from app.db.repositories.outputs import drop_points
from app.db.repositories.tallies import remember_finished
from app.db.tables import Job
from app.db.transition import create_job as insert_job
from app.db.transition import transition
from app.db.uow import UnitOfWork
from app.domain.audit import AuditAction
from app.domain.errors import InvalidState, NotFound, PreconditionFailed
from app.domain.ids import IdPrefix, format_id
from app.domain.specs import ResolvedSpec
from app.domain.states import TERMINAL, Actor, JobStatus, StopReason
from app.schemas.jobs import JobPatch, RetryJobRequest, RetryResources
from app.services.audit import record
from app.services.job_plan import (
    JobPlan,
    check_priority,
    choose_device_class,
    choose_runtime,
)
from app.services.quotas import require_room
from app.settings import Settings

CANCELLABLE_NOW = (JobStatus.PENDING, JobStatus.QUEUED, JobStatus.PAUSED)
UNDER_WAY = (JobStatus.QUEUED, JobStatus.RUNNING)
RETRYABLE = (JobStatus.FAILED, JobStatus.CANCELLED)


@dataclass(frozen=True, slots=True)
class CreatedJob:
    """A job that was just stored, and its place among the queued ones of its project."""

    job: Job
    position: int


def create_job(
    u: UnitOfWork,
    plan: JobPlan,
    settings: Settings,
    *,
    request_id: str | None = None,
    traceparent: str | None = None,
) -> CreatedJob:
    """Store a planned job with its events and its dispatch message.

    Raises
    ------
    ProjectSuspended, QuotaExceeded, QueueFull
        When the project may start no jobs, or a limit of its own or of the service is reached.
    """
    before = require_room(
        u,
        settings,
        device_class=plan.spec.resources.device_class,
        priority=plan.spec.priority,
        output_bytes=plan.estimate.output_bytes,
    )
    columns = _columns_of(plan) | {
        "project_id": u.principal.project_id,
        "created_by_key_id": u.principal.key_id,
        "created_request_id": request_id,
        "traceparent": traceparent,
    }
    job = insert_job(u.session, now=u.now, columns=columns, warnings=plan.warnings)
    _audit(u, AuditAction.JOB_CREATED, job, kind=plan.spec.kind, method=plan.spec.method)
    return CreatedJob(job, before + 1)


def get_job(u: UnitOfWork, job_id: UUID) -> Job:
    """Return a job of the project."""
    return _found(u.jobs.get(job_id))


def list_jobs(
    u: UnitOfWork, filters: JobFilters, *, before: UUID | None, limit: int
) -> Sequence[ListedJob]:
    """List jobs, newest first."""
    return u.jobs.page(filters, before=before, limit=limit)


def patch_job(
    u: UnitOfWork, job_id: UUID, patch: JobPatch, *, expected: frozenset[int] | None
) -> Job:
    """Change name, labels or, while it is queued, the priority."""
    job = _locked(u, job_id, expected)
    values = patch.model_dump(exclude_unset=True)
    if "priority" in values:
        check_priority(u.principal, values["priority"])
        if job.status != JobStatus.QUEUED:
            raise InvalidState(f"Only a queued job can change its priority; it is {job.status}.")
    if not values:
        return job
    _audit(u, AuditAction.JOB_CHANGED, job, fields=sorted(values))
    return u.jobs.change(job, values, now=u.now)


def cancel_job(u: UnitOfWork, job_id: UUID, *, keep_checkpoint: bool) -> Job:
    """Cancel at once what does not run, ask a running job to stop; repeating it is no error."""
    job = _locked(u, job_id, None)
    status = JobStatus(job.status)
    if status in (JobStatus.CANCELLED, JobStatus.CANCELLING):
        return job
    if status in TERMINAL:
        raise InvalidState(f"The job is already {status}; there is nothing to cancel.")
    waiting = status in CANCELLABLE_NOW
    transition(
        u.session,
        job_id,
        status,
        JobStatus.CANCELLED if waiting else JobStatus.CANCELLING,
        Actor.API,
        now=u.now,
        values={"stop_requested": StopReason.CANCEL, "keep_checkpoint": keep_checkpoint},
    )
    if waiting and not keep_checkpoint:
        drop_points(u.session, job, keep_steps=0, now=u.now)
    _audit(u, AuditAction.JOB_CANCELLED, job, status=status)
    return u.jobs.refresh(job)


def pause_job(u: UnitOfWork, job_id: UUID, methods: MethodRegistry) -> Job:
    """Ask a running job to keep a checkpoint and give up its device; repeating it is no error."""
    job = _locked(u, job_id, None)
    if job.status == JobStatus.PAUSED or job.stop_requested == StopReason.PAUSE:
        return job
    if job.status != JobStatus.RUNNING:
        raise InvalidState(f"Only a running job can be paused; it is {job.status}.")
    method = methods.find(job.method, job.method_version)
    if method is None or not method.supports_checkpoint:
        raise InvalidState(
            f"The method {job.method} keeps no checkpoints: paused, the job would lose its work. "
            "Let it finish, or cancel it."
        )
    append_event(u.session, job_id, "job.pausing", now=u.now)
    _audit(u, AuditAction.JOB_PAUSED, job)
    return u.jobs.change(job, {"stop_requested": StopReason.PAUSE}, now=u.now)


def resume_job(u: UnitOfWork, job_id: UUID, settings: Settings) -> Job:
    """Queue a paused job again, or withdraw a pause that has not happened yet; repeatable."""
    job = _locked(u, job_id, None)
    status = JobStatus(job.status)
    if status is JobStatus.PAUSED:
        _require_room_again(u, settings, job, device_class=job.device_class)
        values = {"run_after": u.now}
        transition(u.session, job_id, status, JobStatus.QUEUED, Actor.API, now=u.now, values=values)
        _audit(u, AuditAction.JOB_RESUMED, job)
        return u.jobs.refresh(job)
    if status not in UNDER_WAY:
        raise InvalidState(f"Only a paused job can be resumed; it is {status}.")
    if job.stop_requested is None:
        return job
    append_event(u.session, job_id, "job.resumed", now=u.now)
    _audit(u, AuditAction.JOB_RESUMED, job)
    return u.jobs.change(job, {"stop_requested": None}, now=u.now)


def retry_job(u: UnitOfWork, job_id: UUID, request: RetryJobRequest, settings: Settings) -> Job:
    """Queue a failed or cancelled job again, for at least one more attempt."""
    job = _locked(u, job_id, None)
    status = JobStatus(job.status)
    if status not in RETRYABLE:
        raise InvalidState(f"Only a failed or cancelled job can be tried again; it is {status}.")
    changes = _with_resources(job, request.resources, settings) if request.resources else {}
    device_class = changes.get("device_class", job.device_class)
    _require_room_again(u, settings, job, device_class=device_class)
    max_attempts = max(job.max_attempts, job.attempt + 1)
    values: dict[str, Any] = {
        "stop_requested": None,
        "keep_checkpoint": False,
        "error": None,
        "max_attempts": max_attempts,
        "failures": min(job.failures, max_attempts - 1),
        "run_after": u.now,
        "restart_from": request.from_,
        **changes,
    }
    remember_finished(u.session, job_id)
    transition(u.session, job_id, status, JobStatus.QUEUED, Actor.API, now=u.now, values=values)
    _audit(u, AuditAction.JOB_RETRIED, job, status=status)
    return u.jobs.refresh(job)


def delete_job(u: UnitOfWork, job_id: UUID, *, expected: frozenset[int] | None) -> None:
    """Hide a finished job; its bytes are freed after the grace period."""
    job = _locked(u, job_id, expected)
    if JobStatus(job.status) not in TERMINAL:
        raise InvalidState(f"Cancel the job first: it is {job.status}.")
    u.jobs.change(job, {"deleted_at": u.now}, now=u.now)
    _audit(u, AuditAction.JOB_DELETED, job, status=job.status)


def _require_room_again(u: UnitOfWork, settings: Settings, job: Job, *, device_class: str) -> None:
    """Refuse to queue a job again that would no longer be taken as a new one."""
    # An estimate that an earlier release made does not have the field.
    output_bytes = int((job.estimate or {}).get("output_bytes", 0))
    require_room(
        u,
        settings,
        device_class=device_class,
        priority=job.priority,
        output_bytes=output_bytes,
    )


def _columns_of(plan: JobPlan) -> dict[str, Any]:
    spec = plan.spec
    return {
        "kind": spec.kind,
        "name": spec.name,
        "method": spec.method,
        "method_version": spec.method_version,
        "spec": plan.request.model_dump(mode="json", by_alias=True, exclude_unset=True),
        "resolved_spec": spec.model_dump(mode="json"),
        "spec_hash": spec.sha256(),
        "model_version_id": plan.model_version_id,
        "device_class": spec.resources.device_class,
        "estimate": plan.estimate.as_json(),
        "priority": spec.priority,
        "max_attempts": spec.max_attempts,
        "max_runtime_s": spec.resources.max_runtime_s,
        "seed": spec.seed,
        "labels": spec.labels,
    }


def _with_resources(job: Job, asked: RetryResources, settings: Settings) -> dict[str, Any]:
    spec = ResolvedSpec.model_validate(job.resolved_spec)
    changes: dict[str, Any] = {}
    if asked.device_class is not None:
        current = spec.resources.device_class
        changes["device_class"] = choose_device_class(settings, asked.device_class, current)
    if asked.max_runtime_s is not None:
        changes["max_runtime_s"] = choose_runtime(settings, asked.max_runtime_s)
    if asked.dtype is not None:
        changes["dtype"] = asked.dtype
    resources = spec.resources.model_copy(update=changes)
    spec = spec.model_copy(update={"resources": resources})
    return {
        "resolved_spec": spec.model_dump(mode="json"),
        "spec_hash": spec.sha256(),
        "device_class": resources.device_class,
        "max_runtime_s": resources.max_runtime_s,
    }


def _audit(u: UnitOfWork, action: AuditAction, job: Job, **details: Any) -> None:
    record(u, action, target=format_id(IdPrefix.JOB, job.id), details=details)


def _locked(u: UnitOfWork, job_id: UUID, expected: frozenset[int] | None) -> Job:
    job = _found(u.jobs.lock(job_id))
    if expected is not None and job.version not in expected:
        raise PreconditionFailed(
            "The job has changed since you read it: read it again and decide anew."
        )
    return job


def _found(job: Job | None) -> Job:
    if job is None:
        raise NotFound("There is no such job in this project.")
    return job
