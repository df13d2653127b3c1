"""Capture what an attempt prints and logs, as numbered lines in compressed chunks."""

import faulthandler
import gzip
import json
import logging
import os
import signal
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO

from app.domain.clock import Clock, format_time
from app.logging import plain_formatter
from app.redaction import redact

LINE_LIMIT = 16_384
# Room for a deep traceback; a message that quotes a whole tensor is cut in its middle.
RECORD_LIMIT = 65_536
CHUNK_BYTES = 1024 * 1024
# What an attempt may say in one stream. An engine that prints without end must fill neither the
# disk of its worker, where others work too, nor the store.
STREAM_LIMIT = 64 * 1024 * 1024
CUT = f"… more than {STREAM_LIMIT // 1024**2} MiB: what follows is not kept."
STREAMS = ("stdout", "stderr", "log")
# Where the installation lies is no concern of whoever reads a traceback.
_PLACES = {
    f"{Path(__file__).resolve().parents[2]}/": "<evenhand>/",
    f"{sysconfig.get_path('stdlib')}/": "<python>/",
    f"{sysconfig.get_path('purelib')}/": "<packages>/",
}
_LEVEL_OF_STREAM = {"stdout": "info", "stderr": "warning"}


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Consecutive lines of one stream; `data` is gzip-compressed NDJSON."""

    stream: str
    number: int
    first_line: int
    line_count: int
    first_at: datetime
    last_at: datetime
    data: bytes


@dataclass(slots=True)
class _Tail:
    """How far a captured file was read."""

    path: Path
    offset: int = 0
    chunks: int = 0
    lines: int = 0
    kept: int = 0
    cut: bool = False


class LogFiles:
    """Three files, read from time to time from where the last reading ended.

    Files and not pipes: whoever prints must never wait for a reader, and what a dying process
    printed last is still there.

    Parameters
    ----------
    shown_as
        What to show for folders and ids of this machine: tenants read the lines.
    """

    def __init__(
        self, folder: Path, clock: Clock, *, shown_as: Mapping[str, str] | None = None
    ) -> None:
        self._clock = clock
        # As they look inside a JSON text; the longest first: one folder may lie within another.
        named = {
            json.dumps(text)[1:-1]: shown for text, shown in {**_PLACES, **(shown_as or {})}.items()
        }
        self._shown_as = sorted(named.items(), key=lambda item: len(item[0]), reverse=True)
        self._tails = {name: _Tail(folder / name) for name in STREAMS}
        for tail in self._tails.values():
            tail.path.touch(mode=0o600)

    def path(self, stream: str) -> Path:
        """Name the file of a stream."""
        return self._tails[stream].path

    def take(self, *, final: bool = False) -> list[LogChunk]:
        """Give the complete lines written since the last call; all that is left when `final`."""
        chunks = []
        for stream, tail in self._tails.items():
            while (chunk := self._next_chunk(stream, tail, final)) is not None:
                chunks.append(chunk)
        return chunks

    def _next_chunk(self, stream: str, tail: _Tail, final: bool) -> LogChunk | None:
        if tail.kept >= STREAM_LIMIT:
            return self._drop(stream, tail)
        with tail.path.open("rb") as handle:
            handle.seek(tail.offset)
            data = handle.read(CHUNK_BYTES)
        end = data.rfind(b"\n") + 1
        if end == 0 and (final or len(data) == CHUNK_BYTES):
            end = len(data)
        if end == 0:
            return None
        tail.offset += end
        tail.kept += end
        return self._chunk(stream, tail, data[:end].splitlines())

    def _drop(self, stream: str, tail: _Tail) -> LogChunk | None:
        """Empty the file of a stream that has said enough, and say so once."""
        if tail.path.stat().st_size == tail.offset:
            return None
        # Whoever prints appends, and so goes on at the new end.
        os.truncate(tail.path, 0)
        tail.offset = 0
        if tail.cut:
            return None
        tail.cut = True
        notice: dict[str, str] = {"at": format_time(self._clock.now()), "level": "warning"}
        line = json.dumps(notice | {"text": CUT}) if stream == "log" else CUT
        return self._chunk(stream, tail, [line.encode()])

    def _chunk(self, stream: str, tail: _Tail, raw_lines: list[bytes]) -> LogChunk:
        moment = self._clock.now()
        lines = [self._shown(_line(stream, raw, moment)) for raw in raw_lines]
        chunk = LogChunk(
            stream=stream,
            number=tail.chunks,
            first_line=tail.lines + 1,
            line_count=len(lines),
            first_at=moment,
            last_at=moment,
            data=gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0),
        )
        tail.chunks += 1
        tail.lines += len(lines)
        return chunk

    def _shown(self, line: str) -> str:
        for text, shown in self._shown_as:
            line = line.replace(text, shown)
        return line


class LogLineHandler(logging.Handler):
    """Writes log records as JSON lines, so that time and level survive."""

    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__()
        self.setFormatter(plain_formatter())
        self._clock = clock
        self._handle = path.open("a", encoding="utf-8", buffering=1)

    def emit(self, record: logging.LogRecord) -> None:
        """Append one record. Neither a full disk nor a broken record fails whoever logs it."""
        try:
            line = {
                "at": format_time(self._clock.now()),
                "level": record.levelname.lower(),
                "text": _shorten(self.format(record)),
            }
            self._handle.write(f"{json.dumps(line)}\n")
        except Exception:  # whatever a foreign record's formatting raises
            self.handleError(record)

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):
            self._handle.close()
        super().close()


@contextmanager
def capture(files: LogFiles, clock: Clock) -> Iterator[None]:
    """Send stdout, stderr and logging of this process into `files`.

    SIGUSR1 prints the stacks of all threads into the stderr stream; so does a crash. Meanwhile no
    record goes to stderr: it would be in two streams, in one of them without its level.
    """
    handler = LogLineHandler(files.path("log"), clock)
    root = logging.getLogger()
    silenced = [other for other in root.handlers if _writes_to_stderr(other)]
    with _redirect(sys.stdout, files.path("stdout")), _redirect(sys.stderr, files.path("stderr")):
        root.handlers = [handler, *(other for other in root.handlers if other not in silenced)]
        faulthandler.enable(file=2)
        faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
        try:
            yield
        finally:
            faulthandler.unregister(signal.SIGUSR1)
            faulthandler.disable()
            root.handlers = [*silenced, *(other for other in root.handlers if other != handler)]
            handler.close()


def _writes_to_stderr(handler: logging.Handler) -> bool:
    # Not subclasses: those with files of their own are stream handlers too.
    return type(handler) is logging.StreamHandler and handler.stream is sys.stderr


@contextmanager
def _redirect(stream: IO[str], path: Path) -> Iterator[None]:
    """Point the stream's descriptor at a file: also what C code prints is caught."""
    stream.flush()
    target = stream.fileno()
    saved = os.dup(target)
    handle = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.dup2(handle, target)
    os.close(handle)
    try:
        yield
    finally:
        # On a full disk the last words are lost, but not the stream.
        with suppress(OSError):
            stream.flush()
        os.dup2(saved, target)
        os.close(saved)


def _shorten(text: str) -> str:
    if len(text) <= RECORD_LIMIT:
        return text
    half = RECORD_LIMIT // 2
    return f"{text[:half]}\n… ({len(text)} characters) …\n{text[-half:]}"


def _line(stream: str, raw: bytes, moment: datetime) -> str:
    text = raw.decode("utf-8", errors="backslashreplace").replace("\x00", "\\x00")
    if stream == "log":
        return text  # secrets were taken out when the line was formatted
    text = redact(text)
    if len(text) > LINE_LIMIT:
        text = f"{text[:LINE_LIMIT]}… ({len(text)} characters)"
    level = _LEVEL_OF_STREAM[stream]
    return json.dumps({"at": format_time(moment), "level": level, "text": text})
