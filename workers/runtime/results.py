"""What an attempt leaves behind: its manifest, and the table rows of its result."""

import json
import math
import mimetypes
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from app.domain.errors import JobErrorCode, JobFailure
from app.security.paths import plain_segments
from workers.runtime.context import MethodResult, SummaryRow

MANIFEST_NAME = "manifest.json"
CHECKPOINT_FOLDER = "checkpoint"
MAX_NAME_LENGTH = 400

_MEDIA_TYPES = {
    ".safetensors": "application/octet-stream",
    ".gguf": "application/octet-stream",
    ".json": "application/json",
    ".md": "text/markdown; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".jsonl": "application/x-ndjson",
}


@dataclass(frozen=True, slots=True)
class OutputFile:
    """One file of the manifest: a future artifact."""

    name: str
    type: str
    media_type: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StageRow:
    """One metric of one stage, as a row of the evaluation results."""

    stage: str
    benchmark: str
    metric: str
    group: str | None
    value: float
    n: int
    unit: str
    ideal: float | None
    ci95: tuple[float, float] | None


def write_manifest(out_dir: Path) -> None:
    """List every file below `out_dir`; the list appears in one piece, by rename."""
    files = [asdict(_describe(out_dir, path)) for path in _walk(out_dir)]
    partial = out_dir / f"{MANIFEST_NAME}.partial"
    with partial.open("w", encoding="utf-8") as handle:
        json.dump({"files": files}, handle, indent=2)
        handle.flush()
        os.fsync(handle.fileno())
    partial.rename(out_dir / MANIFEST_NAME)


def read_manifest(out_dir: Path) -> list[tuple[OutputFile, Path]]:
    """Give the listed files with their paths, each checked to be a plain file inside `out_dir`.

    Raises
    ------
    JobFailure
        `internal` when an entry is a link, lies elsewhere, or changed its size.
    """
    listed = json.loads((out_dir / MANIFEST_NAME).read_text(encoding="utf-8"))["files"]
    return [_check(out_dir, OutputFile(**entry)) for entry in listed]


def result_json(result: MethodResult, warnings: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Write the result as the job shows it; what is not finite becomes null."""
    return {
        "metrics": {
            "before": _finite(result.before),
            "after": _finite(result.after),
            "delta": _delta(result.before, result.after),
        },
        "summary": [_finite(asdict(row)) for row in result.summary],
        "warnings": [dict(warning) for warning in warnings],
    }


def summary_rows(summary: Sequence[SummaryRow]) -> list[StageRow]:
    """Split each before/after line into one row per stage; stages not measured have none."""
    rows = []
    for line in summary:
        measured = (
            ("before", line.before, line.ci95_before),
            ("after", line.after, line.ci95_after),
        )
        rows += [
            StageRow(
                stage,
                line.benchmark,
                line.metric,
                line.group,
                value,
                line.n,
                line.unit,
                line.ideal,
                interval,
            )
            for stage, value, interval in measured
            if value is not None
        ]
    return rows


def early_rows(state: Mapping[str, Any]) -> list[StageRow]:
    """Read the rows that the state of the first evaluation may offer as `evaluation_rows`."""
    return [
        StageRow(
            stage="before",
            benchmark=row["benchmark"],
            metric=row["metric"],
            group=row.get("group"),
            value=row["value"],
            n=row["n"],
            unit=row["unit"],
            ideal=row.get("ideal"),
            ci95=tuple(row["ci95"]) if row.get("ci95") else None,
        )
        for row in state.get("evaluation_rows", ())
        if row["value"] is not None
    ]


def _walk(out_dir: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(out_dir, followlinks=False):
        for name in sorted(names):
            path = Path(folder, name)
            if path.parent != out_dir or not name.startswith(MANIFEST_NAME):
                yield path


def _describe(out_dir: Path, path: Path) -> OutputFile:
    name = path.relative_to(out_dir).as_posix()
    guessed = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return OutputFile(
        name=name,
        type=_type_of(name),
        media_type=_MEDIA_TYPES.get(path.suffix, guessed),
        size_bytes=path.lstat().st_size,
    )


def _type_of(name: str) -> str:
    head, _, tail = name.partition("/")
    if tail:
        return {CHECKPOINT_FOLDER: "model", "gguf": "model", "plots": "plot"}.get(
            head, "predictions"
        )
    if name.startswith("report."):
        return "report"
    return "config" if name in ("request.json", "resolved_spec.json") else "metrics"


def _check(out_dir: Path, file: OutputFile) -> tuple[OutputFile, Path]:
    try:
        parts = plain_segments(file.name)
    except ValueError as exc:
        raise _untrusted(f"The name {file.name[:MAX_NAME_LENGTH]!r} of an output {exc}.") from exc
    path = out_dir.joinpath(*parts)
    steps = [out_dir.joinpath(*parts[:count]) for count in range(1, len(parts) + 1)]
    if (
        len(file.name) > MAX_NAME_LENGTH
        or any(step.is_symlink() for step in steps)
        or not path.is_file()
    ):
        raise _untrusted(f"The output {file.name!r} is not a plain file of the attempt.")
    if path.stat().st_size != file.size_bytes:
        raise _untrusted(f"The output {file.name!r} changed after it was listed.")
    return file, path


def _untrusted(message: str) -> JobFailure:
    return JobFailure(
        JobErrorCode.INTERNAL, message, "This is a defect of the method: report it with the job id."
    )


def _delta(
    before: Mapping[str, float | None], after: Mapping[str, float | None]
) -> dict[str, float | None]:
    """Subtract what was measured twice; a diagnosis changes nothing and so has no difference."""
    deltas: dict[str, float | None] = {}
    for name in (name for name in before if name in after):
        first, second = before[name], after[name]
        deltas[name] = None if first is None or second is None else second - first
    return {name: _finite(value) for name, value in deltas.items()}


def _finite(value: Any) -> Any:
    """Replace what JSON cannot carry by null, at any depth."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
