"""Bodies of what operators do: projects, workers, queues."""

from typing import Annotated, Literal, Self

from pydantic import Field, Strict, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from app.schemas.base import (
    AwareMoment,
    JsonObject,
    PageParameters,
    RequestBody,
    ResponseBody,
    Timestamp,
)
from app.schemas.keys import NewKeyBody, ScopeName
from app.security.scopes import Scope

# Integers up to here are exact in every JSON reader.
LARGEST = 2**53 - 1

ProjectName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
KeyName = Annotated[str, StringConstraints(min_length=1, max_length=100)]
Weight = Annotated[float, Field(gt=0, le=1000, description="Share of the slots, against others.")]
MaxRunning = Annotated[int, Field(ge=0, le=100_000, description="Jobs that run at once.")]
MaxQueued = Annotated[int, Field(ge=0, le=1_000_000, description="Jobs that wait at once.")]
MaxStorageBytes = Annotated[int, Field(ge=0, le=LARGEST)]
MaxGpuSeconds = Annotated[int, Field(ge=0, le=2**31 - 1)]
RetentionDays = Annotated[int, Field(ge=1, le=36_500, description="How long artifacts are kept.")]
STORAGE = "Bytes that it may hold, each counted once; null for no limit."
GPU = "Seconds on accelerators in any 24 hours; null for no limit."

WorkerState = Literal["ready", "draining", "stopped", "lost"]


class ProjectRequest(RequestBody):
    """A project to make, with its first key."""

    name: ProjectName
    weight: Weight = 1.0
    max_running: MaxRunning = 16
    max_queued: MaxQueued = 100
    max_storage_bytes: MaxStorageBytes | None = Field(default=None, description=STORAGE)
    max_gpu_s_per_day: MaxGpuSeconds | None = Field(default=None, description=GPU)
    retention_days: RetentionDays = 90
    suspended: bool = Field(default=False, description="Take no new jobs.")
    key_name: KeyName = Field(default="first", description="Name of its first key.")


class ProjectPatch(RequestBody):
    """Fields of a project to change; a field left out stays as it is."""

    name: ProjectName | None = None
    weight: Weight | None = None
    max_running: MaxRunning | None = None
    max_queued: MaxQueued | None = None
    max_storage_bytes: MaxStorageBytes | None = Field(default=None, description=STORAGE)
    max_gpu_s_per_day: MaxGpuSeconds | None = Field(default=None, description=GPU)
    retention_days: RetentionDays | None = None
    suspended: bool | None = Field(default=None, description="Take no new jobs.")

    @model_validator(mode="after")
    def _only_quotas_may_be_null(self) -> Self:
        for field in self.model_fields_set - {"max_storage_bytes", "max_gpu_s_per_day"}:
            if getattr(self, field) is None:
                raise PydanticCustomError(
                    "null_not_allowed",
                    "Leave out {field} to keep it; it cannot be null.",
                    {"field": field},
                )
        return self


class ProjectDetail(ResponseBody):
    """A project with its limits."""

    id: str = Field(examples=["prj_01m8pkgatdeqw4s6v8x0z2b4df"])
    name: str
    weight: float
    max_running: int
    max_queued: int
    max_storage_bytes: int | None
    max_gpu_s_per_day: int | None
    retention_days: int
    suspended: bool
    created_at: Timestamp
    updated_at: Timestamp


class NewProjectBody(ResponseBody):
    """A project that was just made, and its first key."""

    project: ProjectDetail
    key: NewKeyBody


class ProjectKeyRequest(RequestBody):
    """A further key of a project."""

    name: KeyName
    scopes: list[ScopeName] | None = Field(
        default=None,
        min_length=1,
        max_length=len(Scope),
        description="Left out: all scopes but `admin`, which only a project's own key can grant.",
    )
    expires_at: Annotated[AwareMoment | None, Strict(strict=False)] = None


class WorkerListParameters(PageParameters):
    """Which workers to list."""

    state: list[WorkerState] = Field(default=[], max_length=4)


class WorkerBody(ResponseBody):
    """One worker: one device, one job at a time."""

    id: str = Field(examples=["wrk_01m8pkhq7c2x4z6b8d0f2h4k6m"])
    host: str
    pid: int
    classes: list[str]
    device: str
    gpu_bytes: int | None
    host_bytes: int | None
    disk_free_bytes: int | None
    disk_low: bool = Field(description="Too little scratch space to take a job.")
    versions: JsonObject
    state: WorkerState
    draining: bool = Field(description="Takes no more jobs, and ends when the running one stops.")
    current_job_id: str | None
    last_seen_at: Timestamp
    started_at: Timestamp


class QueueBody(ResponseBody):
    """What waits and runs in one device class."""

    device_class: str
    queued: int = Field(description="Waiting in the backlog.")
    dispatched: int = Field(description="Handed to the broker, and not yet taken by a worker.")
    running: int
    oldest_age_s: float | None = Field(description="How long the oldest of those that wait has.")
    workers: int = Field(description="Live workers that serve this class.")
    idle_slots: int = Field(description="Those of them that could take a job now.")
