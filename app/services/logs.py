"""Read log lines from their chunks in the store."""

import base64
import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from app.db.tables import JobLogChunk
from app.db.uow import UnitOfWork
from app.domain.errors import BadRequest, Gone
from app.services.jobs import get_job
from app.storage.objects import ObjectMissing, ObjectStore

LEVELS = ("debug", "info", "warning", "error")
Positions = dict[str, int]
"""Last line read, by `attempt:stream`."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log."""

    attempt: int
    stream: str
    number: int
    at: str
    level: str
    text: str

    @property
    def position(self) -> Positions:
        """Where its stream goes on after this line."""
        return {f"{self.attempt}:{self.stream}": self.number}

    @property
    def raw(self) -> bytes:
        """The line as it was written."""
        return f"{self.text}\n".encode(errors="backslashreplace")


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Which lines to read."""

    attempt: int | None = None
    stream: str | None = None
    level: str | None = None
    positions: Positions = field(default_factory=dict)

    def wants(self, line: Line) -> bool:
        """Tell whether a line passes the level filter."""
        if self.level is None or line.level not in LEVELS:
            return True
        return LEVELS.index(line.level) >= LEVELS.index(self.level)


@dataclass(frozen=True, slots=True)
class LogSlice:
    """Some lines, and where to go on: per stream, since streams grow independently."""

    lines: list[Line]
    has_more: bool
    positions: Positions

    @property
    def next_after(self) -> str:
        """The positions as a client sends them back."""
        return write_positions(self.positions)


def find_chunks(u: UnitOfWork, job_id: UUID, query: LogQuery) -> Sequence[JobLogChunk]:
    """Find the chunks that may hold wanted lines; the store is read after the transaction."""
    get_job(u, job_id)
    chunks = u.records.log_chunks(job_id, attempt=query.attempt, stream=query.stream)
    return [chunk for chunk in chunks if _last_line(chunk) > _position(query, chunk)]


def read_slice(
    store: ObjectStore, chunks: Sequence[JobLogChunk], query: LogQuery, *, limit: int
) -> LogSlice:
    """Read up to `limit` wanted lines."""
    positions = dict(query.positions)
    lines: list[Line] = []
    for line in _lines(store, chunks, query):
        if len(lines) == limit:
            return LogSlice(lines, True, positions)
        positions |= line.position
        if query.wants(line):
            lines.append(line)
    return LogSlice(lines, False, positions)


def read_text(
    store: ObjectStore, chunks: Sequence[JobLogChunk], query: LogQuery
) -> Iterator[bytes]:
    """Read all wanted lines as raw text."""
    for line in _lines(store, chunks, query):
        if query.wants(line):
            yield line.raw


def write_positions(positions: Positions) -> str:
    """Write where to go on."""
    data = json.dumps(positions, sort_keys=True, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def read_positions(text: str | None) -> Positions:
    """Read where to go on.

    Raises
    ------
    BadRequest
        For anything that `write_positions` did not write.
    """
    if text is None:
        return {}
    try:
        padded = text.encode("ascii", errors="replace") + b"=" * (-len(text) % 4)
        found = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, RecursionError) as exc:
        raise _broken() from exc
    if not isinstance(found, dict) or not all(type(n) is int for n in found.values()):
        raise _broken()
    return found


def _lines(store: ObjectStore, chunks: Sequence[JobLogChunk], query: LogQuery) -> Iterator[Line]:
    for chunk in chunks:
        position = _position(query, chunk)
        for offset, entry in enumerate(_entries(store, chunk)):
            number = chunk.first_line + offset
            if number > position:
                yield _line(chunk, number, entry)


def _entries(store: ObjectStore, chunk: JobLogChunk) -> list[dict[str, Any]]:
    try:
        data = b"".join(store.stream(chunk.storage_key))
    except ObjectMissing as exc:
        raise Gone("These log lines were deleted by retention.") from exc
    return [json.loads(text) for text in gzip.decompress(data).splitlines()]


def _line(chunk: JobLogChunk, number: int, entry: dict[str, Any]) -> Line:
    return Line(
        attempt=chunk.attempt,
        stream=chunk.stream,
        number=number,
        at=str(entry.get("at", "")),
        level=str(entry.get("level", "info")),
        text=str(entry.get("text", "")),
    )


def _position(query: LogQuery, chunk: JobLogChunk) -> int:
    return query.positions.get(f"{chunk.attempt}:{chunk.stream}", 0)


def _last_line(chunk: JobLogChunk) -> int:
    return chunk.first_line + chunk.line_count - 1


def _broken() -> BadRequest:
    return BadRequest("The parameter after is broken: start again without it.")
