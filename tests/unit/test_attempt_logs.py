"""What an attempt logs: readable, with its level, and in one stream."""

import gzip
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import structlog

from app.logging import configure_logging
from tests.clock import FakeClock
from workers.runtime.logs import LogFiles, capture

log = structlog.get_logger("engine")


FORMATS = pytest.mark.parametrize("log_format", ["json", "console"])


@contextmanager
def worker_logging(capfd: pytest.CaptureFixture[str], log_format: str) -> Iterator[None]:
    """Set logging up as a worker does, on its real streams, and put everything back."""
    root = logging.getLogger()
    handlers, level, settings = root.handlers, root.level, structlog.get_config()
    with capfd.disabled():
        configure_logging("warning", log_format)
        try:
            yield
        finally:
            root.handlers, root.level = handlers, level
            structlog.configure(**settings)


def captured(files: LogFiles) -> dict[str, list[tuple[str, str]]]:
    """Level and text of every line, by stream."""
    lines: dict[str, list[tuple[str, str]]] = {"stdout": [], "stderr": [], "log": []}
    for chunk in files.take(final=True):
        for entry in map(json.loads, gzip.decompress(chunk.data).splitlines()):
            lines[chunk.stream].append((entry["level"], entry["text"]))
    return lines


@FORMATS
def test_records_are_an_event_and_its_fields_and_are_not_repeated_on_stderr(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], log_format: str
) -> None:
    files = LogFiles(tmp_path, FakeClock())

    with worker_logging(capfd, log_format), capture(files, FakeClock()):
        log.info("model_loaded", layers=3, dtype="float32")
        logging.getLogger("library").warning("slow %s", "path")

    lines = captured(files)
    assert lines["log"] == [
        ("info", "model_loaded dtype=float32 layers=3"),
        ("warning", "slow path"),
    ]
    assert lines["stderr"] == []


@FORMATS
def test_a_traceback_is_readable(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], log_format: str
) -> None:
    files = LogFiles(tmp_path, FakeClock())

    with worker_logging(capfd, log_format), capture(files, FakeClock()):
        try:
            int("no number")
        except ValueError:
            log.exception("step_failed", step=2)

    ((level, text),) = captured(files)["log"]
    assert level == "error"
    assert text.startswith("step_failed step=2\nTraceback (most recent call last):\n")
    assert text.rstrip().endswith("ValueError: invalid literal for int() with base 10: 'no number'")


def test_folders_and_ids_of_the_machine_are_not_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job_id = "0190aaaa-0000-7000-8000-000000000000"
    root = tmp_path / f"{job_id}-1"
    root.mkdir()
    files = LogFiles(root, FakeClock(), shown_as={str(root): "<scratch>", job_id: "job_1"})

    with worker_logging(capfd, "json"), capture(files, FakeClock()):
        print(f"reading {root}/model of {job_id}")
        try:
            json.loads("{")
        except ValueError:
            log.exception("attempt_failed", job_id=job_id, folder=str(root))

    lines = captured(files)
    assert lines["stdout"] == [("info", "reading <scratch>/model of job_1")]
    ((_, text),) = lines["log"]
    assert text.startswith("attempt_failed folder=<scratch> job_id=job_1\n")
    assert 'File "<evenhand>/tests/unit/test_attempt_logs.py"' in text
    assert 'File "<python>/json/decoder.py"' in text
    assert str(tmp_path) not in text


def test_records_go_to_stderr_again_when_the_attempt_is_over(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with worker_logging(capfd, "json"):
        (handler,) = logging.getLogger().handlers

        with capture(LogFiles(tmp_path, FakeClock()), FakeClock()):
            inside = list(logging.getLogger().handlers)

        assert logging.getLogger().handlers == [handler]
        assert handler not in inside


def test_a_stream_without_end_is_cut_and_its_file_stays_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.runtime.logs.STREAM_LIMIT", 1000)
    files = LogFiles(tmp_path, FakeClock())
    kept = []
    for stream in ("stdout", "log"):
        line = json.dumps({"at": "2026-01-01T00:00:00.000Z", "level": "info", "text": "x" * 60})
        with files.path(stream).open("a") as printing:
            for _ in range(100):
                print(line, file=printing, flush=True)
                kept.append(captured(files)[stream])

        texts = [text for lines in kept for _, text in lines]
        assert 1000 <= sum(len(line) + 1 for line in [line] * (len(texts) - 1)) <= 1200
        assert "is not kept" in texts[-1]
        assert files.path(stream).stat().st_size == 0
        kept.clear()
