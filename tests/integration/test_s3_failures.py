"""The S3 store against a server that fails."""

from pathlib import Path

import pytest

from app.domain.errors import StorageUnavailable
from app.storage.objects import PART_BYTES, ObjectStore, open_store
from app.storage.s3 import MAX_RETRIES
from tests.s3_stand_in import Script, failing_s3


def open_scripted(script: Script) -> ObjectStore:
    return open_store(
        "s3://bucket",
        endpoint_url=script.endpoint_url,
        access_key_id="key",
        secret_access_key="secret",
        force_path_style=True,
    )


def test_a_put_that_fails_twice_is_tried_a_third_time() -> None:
    with failing_s3(failing_puts=2, stored_bytes=4) as script:
        open_scripted(script).put_bytes("a", b"data")

    puts = [line for line in script.requests if line.startswith("PUT")]
    assert puts == ["PUT /bucket/a 503"] * 2 + ["PUT /bucket/a 200"]


def test_a_put_that_always_fails_is_given_up() -> None:
    with failing_s3(failing_puts=100) as script, pytest.raises(StorageUnavailable):
        open_scripted(script).put_bytes("a", b"data")

    assert script.requests == ["PUT /bucket/a 503"] * (1 + MAX_RETRIES)


def test_a_store_that_keeps_less_than_it_took_is_found_out() -> None:
    with (
        failing_s3(stored_bytes=3) as script,
        pytest.raises(StorageUnavailable, match="took 4 bytes and holds 3 bytes"),
    ):
        open_scripted(script).put_bytes("a", b"data")


def test_a_multipart_upload_that_fails_is_aborted(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(bytes(PART_BYTES + 1))

    with failing_s3(failing_puts=100) as script, pytest.raises(StorageUnavailable):
        open_scripted(script).put_file("a", path)

    assert "DELETE /bucket/a?uploadId=u1 204" in script.requests
