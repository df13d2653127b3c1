"""Shapes of the answers, as far as the client knows them.

Answers are passed on as they came: a newer service may send more fields than are named here.
"""

from typing import Literal, NotRequired, TypeAlias, TypedDict

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

JobStatus: TypeAlias = Literal[
    "pending", "queued", "running", "cancelling", "paused", "succeeded", "failed", "cancelled"
]
TERMINAL_STATUSES: frozenset[JobStatus] = frozenset({"succeeded", "failed", "cancelled"})


class Progress(TypedDict):
    """How far the current phase is; `fraction` and `eta_s` are None while unknown."""

    fraction: float | None
    step: int | None
    total_steps: int | None
    eta_s: float | None
    message: str | None
    updated_at: str | None


class JobError(TypedDict):
    """Why a job failed, and in `hint` what to do about it."""

    code: str
    message: str
    hint: str | None
    retryable: bool
    attempt: int | None
    phase: str | None
    exit_code: int | None
    signal: int | None


class SummaryRow(TypedDict):
    """One metric before and after; `improved` is None where the data decide nothing."""

    benchmark: str
    metric: str
    group: str | None
    before: float | None
    after: float | None
    delta: float | None
    ideal: float | None
    improved: bool | None
    ci95_before: list[float] | None
    ci95_after: list[float] | None
    ci95_delta: list[float] | None
    n: int
    p_value: float | None


class JobResult(TypedDict):
    """What a finished job found and left behind."""

    model_version_id: str | None
    metrics: dict[str, JsonValue]
    summary: list[SummaryRow]
    artifacts: list[str]
    warnings: list[JsonValue]


class Job(TypedDict):
    """One job as the service describes it."""

    id: str
    kind: str
    name: str | None
    status: JobStatus
    phase: str | None
    progress: Progress | None
    queue: dict[str, JsonValue]
    model: dict[str, JsonValue]
    method: str
    method_version: str
    config: dict[str, JsonValue]
    spec_hash: str
    attempt: int
    max_attempts: int
    priority: int
    seed: int
    stop_requested: Literal["cancel", "pause"] | None
    worker: dict[str, JsonValue] | None
    error: JobError | None
    result: JobResult | None
    gate: dict[str, JsonValue] | None
    estimate: dict[str, JsonValue] | None
    created_at: str
    queued_at: str | None
    started_at: str | None
    finished_at: str | None
    usage: dict[str, JsonValue] | None
    labels: dict[str, str]
    created_by_key: str | None
    links: dict[str, str]
    warnings: list[str] | None


class JobEvent(TypedDict):
    """One entry of a job's history; `seq` counts up from 1 within the job."""

    seq: int
    type: str
    at: str
    level: str
    data: dict[str, JsonValue]


class Artifact(TypedDict):
    """One file a job left behind; `name` is a relative path with forward slashes."""

    id: str
    name: str
    size_bytes: int
    sha256: str
    type: str
    media_type: str


class Method(TypedDict):
    """One debiasing method; the last four fields come with `get` only."""

    name: str
    version: str
    title: str
    summary: str
    family: str
    modality: list[str]
    model_types: list[str]
    produces: str
    requires_training: bool
    supports_checkpoint: bool
    deterministic: bool
    default_device_class: str
    references: list[dict[str, str]]
    deprecated: bool
    config_schema: NotRequired[dict[str, JsonValue]]
    example_config: NotRequired[dict[str, JsonValue]]
    datasets: NotRequired[list[str]]
    metrics: NotRequired[list[dict[str, JsonValue]]]


class QuotaUse(TypedDict):
    """One quota of the project and what is used of it."""

    limit: int
    used: int


class Me(TypedDict):
    """Who the caller is and what it may use; `key` is None with authentication off."""

    key: dict[str, JsonValue] | None
    project: dict[str, str]
    scopes: list[str]
    quotas: dict[str, QuotaUse]
