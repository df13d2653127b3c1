"""Bodies of what a job leaves behind: events, attempts, logs, metrics, evaluations."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from app.schemas.base import JsonObject, Nonfinite, QueryParameters, ResponseBody, Timestamp
from app.schemas.jobs import JobErrorBody

MAX_LINES = 1000
MAX_POINTS = 10_000
LevelName = Literal["debug", "info", "warning", "error"]
StreamName = Literal["stdout", "stderr", "log"]


class EventBody(ResponseBody):
    """One event of a job."""

    seq: int
    type: str
    at: Timestamp
    level: str
    data: JsonObject


class EventParameters(QueryParameters):
    """Which events to read."""

    after: int = Field(default=0, ge=0, le=2**31 - 1, description="Number of the last one seen.")
    limit: int = Field(default=100, ge=1, le=1000)


class EventPage(ResponseBody):
    """Events in order."""

    data: list[EventBody]
    has_more: bool
    next_after: int


class AttemptBody(ResponseBody):
    """One try at a job; `outcome` is null while it runs."""

    id: str
    number: int
    worker: str | None
    host: str
    started_at: Timestamp
    ended_at: Timestamp | None
    outcome: str | None
    error: JobErrorBody | None
    exit_code: int | None
    signal: int | None
    peak_rss_bytes: int | None
    peak_gpu_bytes: int | None
    phase_seconds: dict[str, float] | None
    resumed_from: str | None


class LogParameters(QueryParameters):
    """Which log lines to read."""

    attempt: int | None = Field(default=None, ge=1, le=2**31 - 1)
    stream: StreamName | None = Field(default=None, description="`stdout`, `stderr` or `log`.")
    level: LevelName | None = Field(default=None, description="This level and those above it.")
    after: Annotated[str, StringConstraints(max_length=2000)] | None = Field(
        default=None, description="`next_after` of the page before."
    )
    limit: int = Field(
        default=200, ge=1, le=MAX_LINES, description="Lines of a page; a stream has no limit."
    )
    follow: bool = Field(
        default=False,
        description="Send lines as they are written, until the job is finished: as NDJSON, or "
        "raw with `Accept: text/plain`.",
    )


class LogLine(ResponseBody):
    """One line; `line` counts from 1 within its attempt and stream."""

    attempt: int
    stream: str
    line: int
    at: str
    level: str
    text: str


class FollowedLine(LogLine):
    """One line of a stream; a client that lost it goes on with `after` = `next_after`."""

    next_after: str


class LogPage(ResponseBody):
    """Log lines as they were written; `next_after` leads to those that come later too."""

    data: list[LogLine]
    has_more: bool
    next_after: str


class MetricParameters(QueryParameters):
    """Which points to read."""

    name: Annotated[str, StringConstraints(max_length=100)] | None = None
    after_step: int | None = Field(default=None, ge=0, le=2**62)
    max_points: int = Field(
        default=1000,
        ge=2,
        le=MAX_POINTS,
        description="Longer series are thinned out, keeping minima and maxima.",
    )


class MetricPointBody(ResponseBody):
    """One point; a value that is not finite is null, with its name beside it."""

    step: int
    value: float | None
    nonfinite: Nonfinite | None = None
    at: Timestamp


class MetricSeries(ResponseBody):
    """The curve of one metric in one attempt."""

    name: str
    attempt: int
    points: list[MetricPointBody]


class MetricNameBody(ResponseBody):
    """A metric that has points."""

    name: str
    points: int
    last_step: int


class EvaluationBody(ResponseBody):
    """One metric of one stage, with its interval; a value that is not finite is null."""

    stage: Literal["before", "after", "only"]
    benchmark: str
    benchmark_version: str
    metric: str
    group: str | None
    seed: int
    value: float | None
    nonfinite: Nonfinite | None = None
    ci_low: float | None
    ci_high: float | None
    ci_level: float | None
    n: int
    unit: str
    ideal: float | None


class CheckpointBody(ResponseBody):
    """A point that a job can go on from; `step` is null for a finished phase."""

    phase: str
    step: int | None
    size_bytes: int
    created_at: Timestamp
    resumable: bool
