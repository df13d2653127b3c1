"""Keys of the object store."""

import hashlib

import pytest

from app.storage.keys import BlobAddress, LogAddress, blob_key, log_key, parse_key, validate_key

PROJECT = "prj_01k9x4m3b7e0000000000000aa"
SHA256 = hashlib.sha256(b"").hexdigest()


def test_blobs_fan_out_by_their_hash() -> None:
    key = blob_key(PROJECT, SHA256, "0f")

    assert key == f"p/{PROJECT}/blobs/sha256/e3/b0/{SHA256}.0f"
    assert parse_key(key) == BlobAddress(PROJECT, SHA256)


def test_parts_of_a_log_lie_below_their_attempt_and_stream() -> None:
    key = log_key("prj_1", "job_1", "att_1", "stdout", 3)

    assert key == "p/prj_1/logs/job_1/att_1/stdout/3.ndjson.gz"
    assert parse_key(key) == LogAddress("prj_1", "job_1")


def test_blobs_of_the_first_release_are_told_by_their_key() -> None:
    key = f"p/{PROJECT}/blobs/sha256/e3/b0/{SHA256}"

    assert parse_key(key) == BlobAddress(PROJECT, SHA256)


@pytest.mark.parametrize("key", ["health/probe", "p/prj_1", "p/prj_1/uploads/upl_1/0", "hub/x/y"])
def test_other_keys_say_nothing(key: str) -> None:
    assert parse_key(key) is None


@pytest.mark.parametrize("sha256", ["", SHA256.upper(), SHA256[:-1], SHA256 + "0", "../" + SHA256])
def test_only_a_sha256_names_a_blob(sha256: str) -> None:
    with pytest.raises(ValueError, match="SHA-256"):
        blob_key(PROJECT, sha256, "0f")


@pytest.mark.parametrize(
    "part", ["", ".", "..", "a/b", ".hidden", "-x", "a\\b", "a\0", "a\n", "é", "x" * 201]
)
def test_no_argument_can_leave_its_segment(part: str) -> None:
    with pytest.raises(ValueError, match="not a key"):
        blob_key(part, SHA256, "0f")
    with pytest.raises(ValueError, match="not a key"):
        log_key("prj_1", "job_1", "att_1", part, 1)


def test_a_key_longer_than_s3_takes_is_refused() -> None:
    assert len(validate_key("/".join(["x" * 127] * 8))) == 1023

    with pytest.raises(ValueError, match="not a key"):
        validate_key("/".join(["x" * 127] * 8) + "/x")
