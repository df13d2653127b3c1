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
    step: NotRequired[int | None]
    total_steps: NotRequired[int | None]
    eta_s: NotRequired[float | None]
    message: NotRequired[str | None]
    updated_at: NotRequired[str | None]


class JobError(TypedDict):
    """Why a job failed, and in `hint` what to do about it."""

    code: str
    message: str
    hint: str
    retryable: NotRequired[bool]
    attempt: NotRequired[int]
    phase: NotRequired[str | None]
    exit_code: NotRequired[int | None]
    signal: NotRequired[int | None]


class SummaryRow(TypedDict):
    """One metric before and after; `improved` is None where no direction is better."""

    benchmark: str
    metric: str
    group: NotRequired[str | None]
    before: float | None
    after: float | None
    ideal: NotRequired[float | None]
    improved: bool | None
    ci95_before: NotRequired[list[float] | None]
    ci95_after: NotRequired[list[float] | None]
    n: NotRequired[int]
    p_value: NotRequired[float | None]


class JobResult(TypedDict):
    """What a finished job found and left behind."""

    model_version_id: str | None
    metrics: dict[str, JsonValue]
    summary: list[SummaryRow]
    artifacts: list[str]
    warnings: list[str]


class Job(TypedDict):
    """One job as the service describes it."""

    id: str
    status: JobStatus
    kind: NotRequired[str]
    name: NotRequired[str | None]
    phase: NotRequired[str | None]
    progress: NotRequired[Progress | None]
    queue: NotRequired[dict[str, JsonValue] | None]
    model: NotRequired[dict[str, JsonValue]]
    method: NotRequired[str | None]
    method_version: NotRequired[str | None]
    config: NotRequired[dict[str, JsonValue]]
    spec_hash: NotRequired[str]
    attempt: NotRequired[int]
    max_attempts: NotRequired[int]
    stop_requested: NotRequired[str | None]
    error: NotRequired[JobError | None]
    result: NotRequired[JobResult | None]
    gate: NotRequired[dict[str, JsonValue] | None]
    created_at: NotRequired[str]
    queued_at: NotRequired[str | None]
    started_at: NotRequired[str | None]
    finished_at: NotRequired[str | None]
    usage: NotRequired[dict[str, JsonValue] | None]
    labels: NotRequired[dict[str, str]]
    links: NotRequired[dict[str, str]]


class JobEvent(TypedDict):
    """One entry of a job's history; `seq` counts up from 1 within the job."""

    seq: int
    type: str
    at: NotRequired[str]
    level: NotRequired[str]
    data: NotRequired[dict[str, JsonValue]]


class Artifact(TypedDict):
    """One file a job left behind; `name` is a relative path with forward slashes."""

    id: str
    name: str
    size_bytes: int
    sha256: str
    type: NotRequired[str]
    media_type: NotRequired[str]


class Method(TypedDict):
    """One debiasing method; `config_schema` and `example_config` come with `get` only."""

    name: str
    version: str
    title: NotRequired[str]
    summary: NotRequired[str]
    family: NotRequired[str]
    modality: NotRequired[list[str]]
    model_types: NotRequired[list[str]]
    produces: NotRequired[str]
    deprecated: NotRequired[bool]
    config_schema: NotRequired[dict[str, JsonValue]]
    example_config: NotRequired[dict[str, JsonValue]]
    datasets: NotRequired[list[str]]
    metrics: NotRequired[list[JsonValue]]


class Me(TypedDict):
    """The key in use, its project and scopes, and the quotas with what is used of them."""

    scopes: list[str]
    key: NotRequired[JsonValue]
    project: NotRequired[JsonValue]
    quotas: NotRequired[JsonValue]
