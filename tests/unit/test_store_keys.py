"""Keys of the object store."""

import hashlib

import pytest

from app.storage.keys import (
    blob_key,
    checkpoint_key,
    checkpoint_prefix,
    hub_key,
    log_key,
    validate_key,
)

PROJECT = "prj_01k9x4m3b7e0000000000000aa"
SHA256 = hashlib.sha256(b"").hexdigest()


def test_blobs_fan_out_by_their_hash() -> None:
    assert blob_key(PROJECT, SHA256) == f"p/{PROJECT}/blobs/sha256/e3/b0/{SHA256}"


def test_the_other_keys_have_the_documented_layout() -> None:
    assert log_key("prj_1", "job_1", "att_1", "stdout", 3) == (
        "p/prj_1/logs/job_1/att_1/stdout/3.ndjson.gz"
    )
    assert checkpoint_key("prj_1", "job_1", 2, 40, "state.json") == (
        "p/prj_1/checkpoints/job_1/2/40/state.json"
    )
    assert hub_key("org/name", "abc123", "config.json") == "hub/org/name/abc123/config.json"
    assert hub_key("name", "abc123", "config.json") == "hub/_/name/abc123/config.json"


def test_a_checkpoint_lies_below_its_prefix() -> None:
    prefix = checkpoint_prefix("prj_1", "job_1", 2, 40)

    assert checkpoint_key("prj_1", "job_1", 2, 40, "state.json").startswith(f"{prefix}/")


@pytest.mark.parametrize("sha256", ["", SHA256.upper(), SHA256[:-1], SHA256 + "0", "../" + SHA256])
def test_only_a_sha256_names_a_blob(sha256: str) -> None:
    with pytest.raises(ValueError, match="SHA-256"):
        blob_key(PROJECT, sha256)


@pytest.mark.parametrize(
    "part", ["", ".", "..", "a/b", ".hidden", "-x", "a\\b", "a\0", "a\n", "é", "x" * 201]
)
def test_no_argument_can_leave_its_segment(part: str) -> None:
    with pytest.raises(ValueError, match="not a key"):
        blob_key(part, SHA256)
    with pytest.raises(ValueError, match="not a key"):
        log_key("prj_1", "job_1", "att_1", part, 1)
    with pytest.raises(ValueError, match="not a key"):
        hub_key("org/name", "abc123", part)


def test_a_key_longer_than_s3_takes_is_refused() -> None:
    assert len(validate_key("/".join(["x" * 127] * 8))) == 1023

    with pytest.raises(ValueError, match="not a key"):
        validate_key("/".join(["x" * 127] * 8) + "/x")
