"""Scratch folders, checkpoints, captured streams and the manifest."""

import fcntl
import gzip
import json
import logging
import os
import sys
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest

from app.domain.errors import JobErrorCode, JobFailure
from tests.clock import FakeClock
from workers.runtime import scratch
from workers.runtime.checkpoints import read_point, write_point
from workers.runtime.context import MethodResult, SummaryRow
from workers.runtime.logs import LINE_LIMIT, RECORD_LIMIT, LogFiles, LogLineHandler, capture
from workers.runtime.results import (
    early_rows,
    read_manifest,
    result_json,
    summary_rows,
    write_manifest,
)
from workers.runtime.scratch import Scratch, free_bytes, remove_abandoned

JOB = UUID("01890a5d-ac96-774b-bcce-b302099a8057")


def test_an_abandoned_scratch_folder_is_removed_and_a_held_one_is_not(tmp_path: Path) -> None:
    (tmp_path / f"{JOB}-1" / "out").mkdir(parents=True)
    with Scratch(tmp_path, JOB, 2) as layout:
        removed = remove_abandoned(tmp_path)
        held = layout.root.exists()

    assert removed == [f"{JOB}-1"]
    assert held
    assert not layout.root.exists()


@pytest.mark.parametrize("name", ["photos", f"{JOB}", f"{JOB}-", f"{JOB}-1.old", f"my-{JOB}-1"])
def test_folder_of_somebody_else_stays(tmp_path: Path, name: str) -> None:
    """An operator may point the setting at a folder that is not for scratch alone."""
    (tmp_path / name).mkdir()

    assert remove_abandoned(tmp_path) == []
    assert (tmp_path / name).exists()


def test_the_lock_of_a_scratch_folder_is_one_that_the_kernel_drops(tmp_path: Path) -> None:
    with Scratch(tmp_path, JOB, 1) as layout:
        handle = os.open(layout.root / "lock", os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(handle)


def test_free_space_is_known_before_the_scratch_folder_exists(tmp_path: Path) -> None:
    assert free_bytes(tmp_path / "not" / "yet") > 0


def test_a_point_comes_back_as_it_was_written(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3).T, "rng": np.ones(3, np.uint8)}

    files = write_point(tmp_path / "point", arrays, {"step": 3, "x": 0.1})
    found, state = read_point(files)

    assert state == {"step": 3, "x": 0.1}
    assert {name: array.tolist() for name, array in found.items()} == {
        name: array.tolist() for name, array in arrays.items()
    }


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_state_that_is_not_finite_is_a_numerical_failure(tmp_path: Path, value: float) -> None:
    with pytest.raises(JobFailure) as failure:
        write_point(tmp_path / "point", {}, {"loss": value})

    assert failure.value.code is JobErrorCode.NUMERICAL_FAILURE


def test_the_same_point_is_written_as_the_same_bytes(tmp_path: Path) -> None:
    arrays = {"b": np.ones(3), "a": np.zeros(2)}
    first = write_point(tmp_path / "first", arrays, {"b": 1, "a": 2})
    second = write_point(tmp_path / "second", dict(reversed(arrays.items())), {"a": 2, "b": 1})

    assert first.state.read_bytes() == second.state.read_bytes()
    assert first.arrays is not None
    assert second.arrays is not None
    assert first.arrays.read_bytes() == second.arrays.read_bytes()


def test_the_manifest_lists_files_with_their_kind(tmp_path: Path) -> None:
    for name in ("checkpoint/model.safetensors", "plots/a.png", "report.json", "extra.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")

    write_manifest(tmp_path)

    listed = {file.name: file.type for file, _ in read_manifest(tmp_path)}
    assert listed == {
        "checkpoint/model.safetensors": "model",
        "plots/a.png": "plot",
        "report.json": "report",
        "extra.json": "metrics",
    }


@pytest.mark.parametrize(
    "name", ["../outside", "/etc/passwd", "a/../../outside", "./a", "a//b", ""]
)
def test_a_manifest_entry_outside_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "outside").write_bytes(b"x")
    entry = {"name": name, "type": "model", "media_type": "a/b", "size_bytes": 1}
    (out / "manifest.json").write_text(json.dumps({"files": [entry]}))

    with pytest.raises(JobFailure):
        read_manifest(out)


def test_a_link_is_refused_also_as_a_folder(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_bytes(b"x")
    out = tmp_path / "out"
    out.mkdir()
    (out / "link").symlink_to(secret)
    entry = {"name": "link/key", "type": "model", "media_type": "a/b", "size_bytes": 1}
    (out / "manifest.json").write_text(json.dumps({"files": [entry]}))

    with pytest.raises(JobFailure):
        read_manifest(out)


def test_a_file_that_changed_after_it_was_listed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_bytes(b"x")
    write_manifest(tmp_path)
    (tmp_path / "report.json").write_bytes(b"longer")

    with pytest.raises(JobFailure):
        read_manifest(tmp_path)


def line(before: float | None, after: float | None) -> SummaryRow:
    return SummaryRow(
        benchmark="b",
        metric="m",
        group=None,
        before=before,
        after=after,
        delta=None,
        ideal=0.0,
        improved=None,
        ci95_before=(1.0, 3.0),
        ci95_after=None,
        ci95_delta=None,
        n=4,
        unit="pair",
    )


def test_a_stage_that_was_not_measured_has_no_row() -> None:
    rows = summary_rows([line(2.0, None)])

    assert [(row.stage, row.value, row.ci95) for row in rows] == [("before", 2.0, (1.0, 3.0))]


def test_what_is_not_finite_is_null_in_the_result() -> None:
    result = MethodResult(
        before={"m": 1.0, "x": None}, after={"m": float("inf")}, summary=(line(float("nan"), 1.0),)
    )

    document = result_json(result, [])

    assert document["metrics"] == {
        "before": {"m": 1.0, "x": None},
        "after": {"m": None},
        "delta": {"m": None},
    }
    assert document["summary"][0]["before"] is None
    json.dumps(document, allow_nan=False)


def test_a_model_that_was_only_measured_has_no_difference() -> None:
    result = MethodResult(before={"m": 1.0}, after={}, summary=(line(1.0, None),))

    assert result_json(result, [])["metrics"] == {"before": {"m": 1.0}, "after": {}, "delta": {}}


def test_a_state_without_evaluation_rows_gives_none() -> None:
    assert early_rows({"bias": 1.0}) == []


def lines_of(chunks: list, stream: str) -> list[dict[str, str]]:
    return [
        json.loads(text)
        for chunk in chunks
        if chunk.stream == stream
        for text in gzip.decompress(chunk.data).decode().splitlines()
    ]


def test_lines_are_numbered_through_and_an_unfinished_one_waits(tmp_path: Path) -> None:
    files = LogFiles(tmp_path, FakeClock())
    files.path("stdout").write_bytes(b"one\ntwo\nthr")

    first = files.take()
    with files.path("stdout").open("ab") as handle:
        handle.write(b"ee\n")
    second = files.take()

    assert [text["text"] for text in lines_of(first + second, "stdout")] == ["one", "two", "three"]
    assert [(chunk.number, chunk.first_line, chunk.line_count) for chunk in first + second] == [
        (0, 1, 2),
        (1, 3, 1),
    ]


def test_the_last_line_is_kept_although_it_has_no_end(tmp_path: Path) -> None:
    files = LogFiles(tmp_path, FakeClock())
    files.path("stderr").write_bytes(b"Fatal")

    assert [text["text"] for text in lines_of(files.take(final=True), "stderr")] == ["Fatal"]


def test_bytes_that_are_no_text_are_escaped_and_long_lines_are_cut(tmp_path: Path) -> None:
    files = LogFiles(tmp_path, FakeClock())
    files.path("stdout").write_bytes(b"\xff\x00\n" + b"x" * (LINE_LIMIT + 1) + b"\n")

    strange, long = lines_of(files.take(), "stdout")

    assert strange["text"] == "\\xff\\x00"
    assert long["text"].endswith(f"… ({LINE_LIMIT + 1} characters)")


def test_prints_and_log_records_are_captured_with_their_level(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    files = LogFiles(tmp_path, FakeClock())
    # pytest's own capture replaces the streams; their descriptors are what is redirected.
    with capfd.disabled(), capture(files, FakeClock()):
        os.write(sys.stdout.fileno(), b"printed\n")
        logging.getLogger("engine").warning("logged %d", 1)

    chunks = files.take(final=True)
    assert [text["text"] for text in lines_of(chunks, "stdout")] == ["printed"]
    logged = lines_of(chunks, "log")
    assert [(text["level"], text["text"]) for text in logged] == [("warning", "logged 1")]


def record(message: object) -> logging.LogRecord:
    return logging.LogRecord("engine", logging.INFO, "", 0, message, None, None)


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(("path", "message"), [("/dev/full", "text"), ("log", Unprintable())])
def test_a_record_that_cannot_be_written_does_not_fail_whoever_logs_it(
    tmp_path: Path, path: str, message: object
) -> None:
    handler = LogLineHandler(tmp_path / path, FakeClock())

    handler.emit(record(message))
    handler.close()


def test_a_record_that_is_too_long_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    handler = LogLineHandler(tmp_path / "log", FakeClock())

    handler.emit(record("first" + "x" * RECORD_LIMIT + "last"))
    handler.close()

    text = json.loads((tmp_path / "log").read_text())["text"]
    assert (text[:5], text[-4:]) == ("first", "last")
    assert len(text) < RECORD_LIMIT + 100


def test_a_scratch_folder_that_a_clean_up_takes_away_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, thefts = scratch._try_lock, iter([True])

    def steal_then_lock(folder: Path) -> int | None:
        if next(thefts, False):
            folder.rmdir()
        return lock(folder)

    monkeypatch.setattr(scratch, "_try_lock", steal_then_lock)

    with Scratch(tmp_path, JOB, 1) as layout:
        assert layout.out.is_dir()
        assert remove_abandoned(tmp_path) == []
