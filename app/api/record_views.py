"""Rows of a job's records as response bodies."""

import csv
import io
from collections.abc import Iterable, Sequence

from app.api.job_views import finite, nonfinite_name
from app.db.tables import EvaluationResult, JobAttempt, JobCheckpoint, JobEvent, MetricPoint
from app.domain.clock import format_time
from app.domain.ids import IdPrefix, format_id
from app.schemas.jobs import JobErrorBody
from app.schemas.records import (
    AttemptBody,
    CheckpointBody,
    EvaluationBody,
    EventBody,
    FollowedLine,
    LogLine,
    MetricPointBody,
    MetricSeries,
)
from app.services.logs import Line, Positions, write_positions
from app.services.records import Series

CSV_HEADER = ("name", "attempt", "step", "value", "nonfinite", "at")
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def event_body(row: JobEvent) -> EventBody:
    """Show an event."""
    return EventBody(seq=row.seq, type=row.type, at=row.at, level=row.level, data=finite(row.data))


def attempt_body(row: JobAttempt) -> AttemptBody:
    """Show an attempt."""
    error = {name: (row.error or {}).get(name) for name in JobErrorBody.model_fields}
    return AttemptBody(
        id=format_id(IdPrefix.ATTEMPT, row.id),
        number=row.number,
        worker=format_id(IdPrefix.WORKER, row.worker_id) if row.worker_id else None,
        host=row.host,
        started_at=row.started_at,
        ended_at=row.ended_at,
        outcome=row.outcome,
        error=JobErrorBody(**_given(error)) if row.error else None,
        exit_code=row.exit_code,
        signal=row.signal,
        peak_rss_bytes=row.peak_rss_bytes,
        peak_gpu_bytes=row.peak_gpu_bytes,
        phase_seconds=row.phase_seconds,
        resumed_from=row.resumed_from,
    )


def log_line(line: Line) -> LogLine:
    """Show a log line."""
    return LogLine(
        attempt=line.attempt,
        stream=line.stream,
        line=line.number,
        at=line.at,
        level=line.level,
        text=line.text,
    )


def followed_line(line: Line, positions: Positions) -> bytes:
    """Show a log line as a line of NDJSON that says where to go on after it."""
    body = FollowedLine(**log_line(line).model_dump(), next_after=write_positions(positions))
    return body.model_dump_json().encode() + b"\n"


def metric_series(series: Series) -> MetricSeries:
    """Show a curve."""
    points = [_point(row) for row in series.points]
    return MetricSeries(name=series.name, attempt=series.attempt, points=points)


def metrics_csv(curves: Iterable[Series]) -> str:
    """Write curves as CSV; no cell can be taken for a formula by a spreadsheet."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(CSV_HEADER)
    for series in curves:
        for row in series.points:
            point = _point(row)
            writer.writerow(
                (
                    _plain_cell(series.name),
                    series.attempt,
                    point.step,
                    "" if point.value is None else repr(point.value),
                    point.nonfinite or "",
                    format_time(point.at),
                )
            )
    return text.getvalue()


def evaluation_body(row: EvaluationResult) -> EvaluationBody:
    """Show an evaluation row."""
    value, nonfinite = _number(row.value, row.nonfinite)
    return EvaluationBody(
        stage=row.stage,
        benchmark=row.benchmark,
        benchmark_version=row.benchmark_version,
        metric=row.metric,
        group=row.group_key or None,
        seed=row.seed,
        value=value,
        nonfinite=nonfinite,
        ci_low=finite(row.ci_low),
        ci_high=finite(row.ci_high),
        ci_level=row.ci_level,
        n=row.n,
        unit=row.unit,
        ideal=row.ideal,
    )


def checkpoint_bodies(rows: Sequence[tuple[JobCheckpoint, bool]]) -> list[CheckpointBody]:
    """Show checkpoints."""
    return [
        CheckpointBody(
            phase=row.phase,
            step=row.step,
            size_bytes=row.size_bytes,
            created_at=row.created_at,
            resumable=resumable,
        )
        for row, resumable in rows
    ]


def _point(row: MetricPoint) -> MetricPointBody:
    value, nonfinite = _number(row.value, row.nonfinite)
    return MetricPointBody(step=row.step, value=value, nonfinite=nonfinite, at=row.at)


def _number(value: float | None, nonfinite: str | None) -> tuple[float | None, str | None]:
    """Give a value and, for one that JSON cannot carry, null and its name."""
    if value is None or nonfinite is not None:
        return None, nonfinite
    return finite(value), nonfinite_name(value)


def _given(values: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


def _plain_cell(text: str) -> str:
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text
