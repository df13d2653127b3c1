"""Artifacts whose bytes were damaged in the store: a client is told, or finds out by the digest."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from debias_client import Client
from debias_client.errors import ClientError
from debias_client.retries import RetryPolicy
from tests.integration.api.callers import Caller
from tests.integration.api.live_server import LiveServer
from tests.integration.api.runs import finished_job

NAME = "weights.bin"
SIZE_BYTES = 3 << 20  # several chunks of a download


@pytest.fixture
def live(caller: Caller) -> Iterator[str]:
    server = LiveServer(caller)
    yield server.start()
    server.stop()


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: SIZE_BYTES // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def delete(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("damage", [flip_a_byte, cut_in_half, empty, delete])
def test_no_client_ends_up_with_damaged_bytes(
    caller: Caller, live: str, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    data = hashlib.sha256(damage.__name__.encode()).digest() * (SIZE_BYTES // 32)
    job_id = finished_job(caller, {NAME: data})
    sha256 = hashlib.sha256(data).hexdigest()
    (stored,) = [
        path
        for path in (caller.app.settings.home / "objects").rglob("*")
        if path.is_file() and sha256 in str(path)
    ]
    damage(stored)

    once = RetryPolicy(max_attempts=1)
    with Client(live, caller.key, retry=once) as client, pytest.raises(ClientError):
        client.download(job_id, tmp_path / "files")

    assert not (tmp_path / "files" / NAME).exists()


def test_bytes_that_are_fewer_than_described_are_no_defect_of_the_service(caller: Caller) -> None:
    job_id = finished_job(caller, {NAME: b"a report of some length"})
    for path in (caller.app.settings.home / "objects").rglob("*"):
        if path.is_file() and path.read_bytes() == b"a report of some length":
            empty(path)
    (row,) = caller.get(f"/v1/jobs/{job_id}/artifacts").json()["data"]

    answer = caller.get(row["content"])

    assert (answer.status_code, answer.json()["code"]) == (503, "storage_unavailable")
