"""Bytes that changed in the store: nobody takes them for what was stored."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.db.session import Database
from tests.execution import Workshop, read_events, read_job
from tests.fixtures.database import make_project


@pytest.fixture
def workshop(database: Database, tmp_path: Path) -> Workshop:
    return Workshop(database, tmp_path)


def stored_files(workshop: Workshop) -> Iterator[Path]:
    return (path for path in (workshop.folder / "objects").rglob("*") if path.is_file())


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_damaged_checkpoint_starts_over_says_so_and_is_not_kept(workshop: Workshop) -> None:
    job_id = workshop.queue(
        make_project(workshop.database),
        trouble="fail",
        trouble_times=1,
        trouble_step=2,
        fail_retryable=True,
    )
    workshop.run_next()
    for path in stored_files(workshop):
        flip_a_byte(path)

    for _ in range(2):  # the counted failures are among what is damaged
        workshop.run_next()

    events = read_events(workshop.database, job_id)
    warned = [event.data["code"] for event in events if event.type == "job.warning"]
    assert "checkpoint_unreadable" in warned
    assert read_job(workshop.database, job_id).status == "succeeded"
    restored = [event for event in events if event.data.get("action") == "restored"]
    assert restored, "the second try found the checkpoints of the first one damaged as well"
