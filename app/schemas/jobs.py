"""Bodies of jobs."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator
from pydantic_core import PydanticCustomError

from app.demo_models import DEMO_MODELS
from app.schemas.base import (
    JsonObject,
    Labels,
    Moment,
    Name,
    PageParameters,
    QueryParameters,
    RequestBody,
    ResponseBody,
    Timestamp,
)

SOURCES = ("demo", "hub", "path", "version_id")
MAX_SEED = 2**63 - 1
MAX_WAIT_S = 60

StatusName = Literal[
    "pending", "queued", "running", "cancelling", "paused", "succeeded", "failed", "cancelled"
]
Short = Annotated[str, StringConstraints(min_length=1, max_length=300)]


class ModelReference(RequestBody):
    """The model to work on: exactly one of `demo`, `hub`, `path` and `version_id`."""

    demo: Short | None = Field(
        default=None,
        description=f"Small model that comes with the service: {' or '.join(DEMO_MODELS)}.",
        examples=["tiny-llama"],
    )
    hub: Short | None = Field(
        default=None, description="Repository of the model hub.", examples=["org/name"]
    )
    revision: Short | None = Field(
        default=None, description="Branch, tag or commit of the hub repository; default `main`."
    )
    path: Short | None = Field(
        default=None, description="Folder below the operator's models directory."
    )
    version_id: Short | None = Field(
        default=None, description="Version that an earlier job made.", examples=["mv_..."]
    )

    @model_validator(mode="after")
    def _exactly_one_source(self) -> Self:
        given = [name for name in SOURCES if getattr(self, name) is not None]
        if len(given) != 1:
            found = f"not {' and '.join(given)} together" if given else "none is there"
            raise PydanticCustomError(
                "one_source",
                "Give exactly one of demo, hub, path and version_id: {found}.",
                {"found": found},
            )
        if self.revision is not None and self.hub is None:
            raise PydanticCustomError(
                "revision_without_hub", "Leave out revision: only hub models have one."
            )
        return self


class ResourcesRequest(RequestBody):
    """Where and how long an attempt may run."""

    device_class: Annotated[str, StringConstraints(max_length=32)] = Field(
        default="auto", description="A device class of this service, or `auto`."
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    max_runtime_s: int | None = Field(
        default=None, ge=1, description="Wall time of one attempt; default is the operator's limit."
    )


class OutputsRequest(RequestBody):
    """What is kept of a finished job."""

    register_as: (
        Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")] | None
    ) = Field(default=None, description="Name of the model to add the result to as a version.")
    formats: list[Literal["safetensors", "gguf"]] = Field(
        default=["safetensors"],
        min_length=1,
        max_length=2,
        description="`safetensors` always; `gguf` beside it for an artifact that llama.cpp reads.",
        examples=[["safetensors", "gguf"]],
    )
    plots: bool = True
    keep_checkpoints: int = Field(default=0, ge=0, le=10)

    @field_validator("formats")
    @classmethod
    def _safetensors_once(cls, formats: list[str]) -> list[str]:
        if "safetensors" not in formats:
            raise PydanticCustomError(
                "safetensors_missing",
                'Give ["safetensors", "gguf"]: gguf comes beside safetensors, never alone.',
            )
        if len(set(formats)) != len(formats):
            raise PydanticCustomError("format_twice", "Give each format once.")
        return formats


class BenchmarkRequest(RequestBody):
    """One benchmark to run before and after."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    config: JsonObject = Field(
        default_factory=dict, description="Config of the benchmark; see `/v1/benchmarks/{name}`."
    )


class EvaluationRequest(RequestBody):
    """What to measure beside the method's own metrics."""

    benchmarks: list[BenchmarkRequest] = Field(default=[], max_length=20)


class RetryRequest(RequestBody):
    """How often a job is tried."""

    max_attempts: int = Field(default=3, ge=1, le=5)


class JobRequest(RequestBody):
    """A debiasing job."""

    kind: Literal["debias"] = "debias"
    name: Name | None = None
    model: ModelReference
    method: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    method_version: Annotated[str, StringConstraints(pattern=r"^\d+(\.\d+){0,2}$")] | None = Field(
        default=None, description="Full version or its beginning; default is the newest."
    )
    config: JsonObject = Field(
        default_factory=dict, description="Config of the method; see `/v1/methods/{name}/schema`."
    )
    evaluation: EvaluationRequest = EvaluationRequest()
    resources: ResourcesRequest = ResourcesRequest()
    outputs: OutputsRequest = OutputsRequest()
    retry: RetryRequest = RetryRequest()
    priority: int = Field(
        default=0, ge=-10, le=10, description="Above 0 needs the scope `jobs:priority`."
    )
    labels: Labels = Field(default_factory=dict)
    seed: int = Field(default=0, ge=0, le=MAX_SEED)


class JobPatch(RequestBody):
    """Fields of a job that may change; a field left out stays as it is."""

    name: Name | None = None
    labels: Labels | None = None
    priority: int | None = Field(default=None, ge=-10, le=10, description="Queued jobs only.")

    @model_validator(mode="after")
    def _only_name_may_be_null(self) -> Self:
        for field in ("labels", "priority"):
            if field in self.model_fields_set and getattr(self, field) is None:
                raise PydanticCustomError(
                    "null_not_allowed",
                    "Leave out {field} to keep it; it cannot be null.",
                    {"field": field},
                )
        return self


class CancelRequest(RequestBody):
    """How to cancel."""

    keep_checkpoint: bool = False


class RetryResources(RequestBody):
    """Resources of the next attempt; a field left out stays as it is."""

    device_class: Annotated[str, StringConstraints(max_length=32)] | None = None
    dtype: Literal["auto", "float32", "bfloat16", "float16"] | None = None
    max_runtime_s: int | None = Field(default=None, ge=1)


class RetryJobRequest(RequestBody):
    """From where and with what to try a finished job again."""

    from_: Literal["checkpoint", "start"] = Field(default="checkpoint", alias="from")
    resources: RetryResources | None = None


class CreateJobParameters(QueryParameters):
    """How to create a job."""

    dry_run: bool = Field(default=False, description="Validate and estimate only; store nothing.")


class JobListParameters(PageParameters):
    """Which jobs to list."""

    status: list[StatusName] = Field(default=[], max_length=8)
    kind: list[Literal["debias"]] = Field(default=[], max_length=4)
    method: list[Annotated[str, StringConstraints(max_length=64)]] = Field(
        default=[], max_length=20
    )
    label: list[Annotated[str, StringConstraints(max_length=320)]] = Field(
        default=[], max_length=32, description="`key:value`; all must match."
    )
    model_version_id: Annotated[str, StringConstraints(max_length=64)] | None = None
    created_after: Moment | None = Field(default=None, description="Inclusive.")
    created_before: Moment | None = Field(default=None, description="Exclusive.")
    q: Annotated[str, StringConstraints(max_length=200)] | None = Field(
        default=None, description="Beginning of the name."
    )


class GetJobParameters(QueryParameters):
    """How to read a job."""

    wait: float | None = Field(
        default=None,
        ge=0,
        le=MAX_WAIT_S,
        description="Seconds to wait for a change of status before answering.",
    )
    expand: Literal["artifacts"] | None = None


class JobProgress(ResponseBody):
    """How far a running job is."""

    fraction: float | None = None
    step: int | None = None
    total_steps: int | None = None
    eta_s: float | None = None
    message: str | None = None
    updated_at: str | None = None


class JobQueue(ResponseBody):
    """Where a job waits; `position` is known when a single queued job is read."""

    class_: str = Field(alias="class", serialization_alias="class")
    position: int | None


class JobWorker(ResponseBody):
    """Which worker runs the job."""

    id: str
    host_class: str | None


class JobErrorBody(ResponseBody):
    """Why a job failed, and what to do about it."""

    code: str
    message: str
    hint: str | None = None
    retryable: bool = False
    attempt: int | None = None
    phase: str | None = None
    exit_code: int | None = None
    signal: int | None = None


class JobResultBody(ResponseBody):
    """What a job found: metrics before and after, and a summary with intervals."""

    model_version_id: str | None
    metrics: JsonObject
    summary: list[JsonObject]
    artifacts: list[str]
    warnings: list[Any]


class JobLinks(ResponseBody):
    """Paths of what belongs to the job, below the service's public URL."""

    self_: str = Field(alias="self", serialization_alias="self")
    events: str
    logs: str
    metrics: str
    artifacts: str
    report: str


class ArtifactSummary(ResponseBody):
    """An artifact inside an expanded job."""

    id: str
    name: str
    type: str
    size_bytes: int
    sha256: str


class JobBody(ResponseBody):
    """A job."""

    id: str = Field(examples=["job_01m2a5mqf0e0xbzqz2r9m8j4nd"])
    object: Literal["job"] = "job"
    kind: str
    name: str | None
    status: StatusName
    phase: str | None
    progress: JobProgress | None
    queue: JobQueue
    model: JsonObject
    method: str
    method_version: str
    config: JsonObject
    spec_hash: str
    attempt: int
    max_attempts: int
    priority: int
    seed: int
    stop_requested: Literal["cancel", "pause"] | None
    worker: JobWorker | None
    error: JobErrorBody | None
    result: JobResultBody | None
    gate: JsonObject | None = None
    estimate: JsonObject | None
    created_at: Timestamp
    queued_at: Timestamp | None
    started_at: Timestamp | None
    finished_at: Timestamp | None
    usage: JsonObject | None
    labels: dict[str, str]
    created_by_key: str | None
    links: JobLinks
    artifacts: list[ArtifactSummary] | None = Field(
        default=None, description="Only with `expand=artifacts`."
    )
    warnings: list[str] | None = Field(
        default=None,
        description=(
            "What is worth knowing before the job runs; only in the answer to `createJob`. "
            "Later it is among the events."
        ),
    )


class JobCounts(ResponseBody):
    """How many jobs there are of each status, in all and by device class."""

    by_status: dict[StatusName, int]
    by_device_class: dict[str, dict[StatusName, int]]


class JobEstimate(ResponseBody):
    """What a job would need, and all that is wrong with the request."""

    valid: bool
    problems: list[JsonObject]
    warnings: list[str]
    resolved_spec: JsonObject | None
    estimate: JsonObject | None
