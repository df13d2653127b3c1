"""`debias gc` and `debias store verify`, as an operator runs them."""

import os
import sqlite3
from pathlib import Path

import pytest

from tests.integration.test_command_line import debias

ORPHAN = "p/prj_x/logs/job_x/att_x/stdout/1.ndjson.gz"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A service that holds one object without a row, and one row without an object."""
    assert debias("db", "upgrade", DEBIAS_HOME=str(tmp_path)).returncode == 0
    orphan = tmp_path / "objects" / ORPHAN
    orphan.parent.mkdir(parents=True)
    orphan.write_bytes(b"12345")
    os.utime(orphan, (1.7e9, 1.7e9))
    return tmp_path


def add_lost_blob(home: Path) -> None:
    moment = "2026-01-01T00:00:00.000000Z"
    with sqlite3.connect(home / "debias.db") as connection:
        connection.execute(
            "INSERT INTO blobs (project_id, sha256, size_bytes, storage_key, state, created_at, "
            "last_referenced_at) SELECT id, ?, 5, 'p/lost', 'stored', ?, ? FROM projects",
            ("0" * 64, moment, moment),
        )


def test_a_dry_run_counts_and_a_run_deletes(home: Path) -> None:
    promised = debias("gc", "--dry-run", DEBIAS_HOME=str(home))
    assert promised.stdout.endswith("5 bytes of the object store would be freed.\n")
    assert (home / "objects" / ORPHAN).exists()

    done = debias("gc", DEBIAS_HOME=str(home))

    assert (done.returncode, done.stderr) == (0, "")
    line = next(line for line in done.stdout.splitlines() if line.startswith("unknown_objects"))
    assert line.split() == ["unknown_objects", "1", "rows", "5", "bytes"]
    assert done.stdout.endswith("5 bytes of the object store freed.\n")
    assert list((home / "objects").rglob("*")) == []


def test_a_check_names_orphans_and_fails_on_lost_bytes_only(home: Path) -> None:
    orphaned = debias("store", "verify", DEBIAS_HOME=str(home))
    assert orphaned.returncode == 0
    assert f"object {ORPHAN} of 5 bytes has no row." in orphaned.stdout

    add_lost_blob(home)
    lost = debias("store", "verify", "--digests", DEBIAS_HOME=str(home))

    assert lost.returncode == 1
    assert "object p/lost is missing." in lost.stdout


def test_a_database_of_another_release_is_refused(tmp_path: Path) -> None:
    done = debias("gc", DEBIAS_HOME=str(tmp_path))

    assert done.returncode == 1
    assert "debias db upgrade" in done.stderr
