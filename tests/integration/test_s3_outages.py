"""The store on a real S3 server whose answers fail at each step: all of the bytes, or an error."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from pydantic import SecretStr

from app.api.startup import open_runtime
from app.db.schema import upgrade
from app.db.session import Database
from app.domain.errors import StorageUnavailable
from app.metrics import HttpMetrics
from app.settings import Settings
from app.storage import objects
from app.storage.blobs import BlobCorrupt, BlobRef, fetch_file
from app.storage.objects import ObjectMissing, ObjectStore, open_store
from app.storage.s3 import MAX_RETRIES, PATIENT, Patience
from tests.s3_gateway import Fault, S3Relay, Step, relayed_s3
from tests.server_addresses import S3Address

PART_BYTES = 5 << 20  # the least that S3 takes
LARGE = bytes(range(256)) * (2 * PART_BYTES // 256 + 7)
ALWAYS = 100
STEPS: tuple[Step, ...] = ("start", "part", "complete", "head")


@pytest.fixture
def relay(s3_server: S3Address) -> Iterator[S3Relay]:
    with relayed_s3(s3_server) as running:
        yield running


@pytest.fixture
def store(relay: S3Relay, s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    monkeypatch.setattr(objects, "PART_BYTES", PART_BYTES)
    return open_at(relay.address, s3_bucket)


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "large"
    path.write_bytes(LARGE)
    return path


def open_at(
    address: S3Address, bucket: str, *, secret: str | None = None, patience: Patience = PATIENT
) -> ObjectStore:
    return open_store(
        bucket,
        endpoint_url=address.endpoint_url,
        region=address.region,
        access_key_id=address.access_key_id,
        secret_access_key=secret or address.secret_access_key,
        force_path_style=True,
        patience=patience,
    )


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    "fault",
    [
        "503",
        *(pytest.param(other, marks=pytest.mark.slow) for other in ("500", "slow_down", "reset")),
    ],
)
def test_a_step_that_fails_once_is_tried_again(
    store: ObjectStore, relay: S3Relay, large: Path, step: Step, fault: Fault
) -> None:
    relay.fail(step, fault)

    store.put_file("a/large", large)

    assert (step, fault) in relay.requests
    assert b"".join(store.stream("a/large")) == LARGE


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_always_fails_ends_the_upload(
    store: ObjectStore, relay: S3Relay, large: Path, step: Step
) -> None:
    relay.fail(step, "503", times=ALWAYS)

    with pytest.raises(StorageUnavailable):
        store.put_file("a/large", large)

    assert relay.count(step) >= 1 + MAX_RETRIES
    relay.mend()
    found = store.head("a/large")
    # Only the look at the end can fail with all bytes in place.
    assert (found is None) == (step != "head")


def test_parts_of_an_upload_that_failed_are_taken_back(
    store: ObjectStore, relay: S3Relay, large: Path
) -> None:
    relay.fail("part", "503", times=ALWAYS)

    with pytest.raises(StorageUnavailable):
        store.put_file("a/large", large)

    assert relay.count("abort") == 1


@pytest.mark.parametrize("step", ["part", "put"])
def test_an_answer_that_is_lost_changes_nothing(
    store: ObjectStore, relay: S3Relay, large: Path, step: Step
) -> None:
    relay.fail(step, "lost")

    store.put_file("a/large", large)
    store.put_bytes("a/small", b"small")

    assert b"".join(store.stream("a/large")) == LARGE
    assert b"".join(store.stream("a/small")) == b"small"


def test_a_download_that_breaks_off_never_ends_as_if_it_were_whole(
    store: ObjectStore, relay: S3Relay, large: Path
) -> None:
    store.put_file("a/large", large)
    relay.fail("get", "cut", times=ALWAYS)

    with pytest.raises(StorageUnavailable):
        for _ in store.stream("a/large"):
            pass


def test_a_download_that_breaks_off_once_goes_on_or_fails(
    store: ObjectStore, relay: S3Relay, large: Path
) -> None:
    store.put_file("a/large", large)
    relay.fail("get", "cut")
    received = b""

    try:
        for chunk in store.stream("a/large"):
            received += chunk
    except StorageUnavailable:
        return

    assert received == LARGE


def test_expired_credentials_are_the_stores_refusal(store: ObjectStore, relay: S3Relay) -> None:
    relay.fail("put", "expired", times=ALWAYS)

    with pytest.raises(StorageUnavailable, match="refuses this service"):
        store.put_bytes("a", b"data")


def test_wrong_credentials_are_the_stores_refusal(s3_server: S3Address, s3_bucket: str) -> None:
    store = open_at(s3_server, s3_bucket, secret="wrong")

    with pytest.raises(StorageUnavailable, match="refuses this service"):
        store.put_bytes("a", b"data")


def test_a_bucket_that_is_gone_is_the_stores_trouble_not_a_missing_object(
    store: ObjectStore, relay: S3Relay
) -> None:
    relay.fail("put", "no_bucket")

    with pytest.raises(StorageUnavailable, match="bucket"):
        store.put_bytes("a", b"data")


def test_a_flipped_byte_is_found_when_it_is_read(store: ObjectStore, tmp_path: Path) -> None:
    store.put_bytes("a", b"dbta")
    ref = BlobRef("3a6eb0790f39ac87c94f3856b2dd2c5d110e6811602261a9a923d3bb23adc8b7", 4, "a")

    with pytest.raises(BlobCorrupt):
        fetch_file(store, ref, tmp_path / "read")

    assert not (tmp_path / "read").exists()
    with pytest.raises(ObjectMissing):
        fetch_file(store, BlobRef(ref.sha256, 4, "b"), tmp_path / "read")


@pytest.mark.parametrize("call", ["read", "write"])
def test_a_silent_store_is_waited_for_as_long_as_the_caller_has_time(
    relay: S3Relay, s3_bucket: str, call: str
) -> None:
    hurried = Patience(read_timeout_s=0.2, max_retries=100, retry_timeout_s=0.5)
    store = open_at(relay.address, s3_bucket, patience=hurried)
    store.put_bytes("a", b"data")
    relay.fail("get", "silent", times=ALWAYS)
    relay.fail("put", "silent", times=ALWAYS)

    with pytest.raises(StorageUnavailable):
        store.get_range("a", 0, 4) if call == "read" else store.put_bytes("a", b"data")

    # The time ends it, not the number of tries.
    assert relay.count("get" if call == "read" else "put") < 10


@pytest.mark.slow
def test_the_api_gives_up_on_a_silent_store_within_seconds(
    relay: S3Relay, s3_bucket: str, tmp_path: Path
) -> None:
    settings = Settings(
        home=tmp_path,
        store_url=s3_bucket,
        s3_endpoint_url=relay.address.endpoint_url,
        s3_region=relay.address.region,
        s3_access_key_id=SecretStr(relay.address.access_key_id),
        s3_secret_access_key=SecretStr(relay.address.secret_access_key),
        s3_force_path_style=True,
    )
    database = Database(settings.resolved_database_url, answer_timeout_s=None)
    upgrade(database)
    database.dispose()
    registry = CollectorRegistry()
    with open_runtime(settings, registry, HttpMetrics(registry), maintenance=False) as runtime:
        assert runtime.readiness.current().store
        relay.fail("put", "silent", times=ALWAYS)
        relay.fail("get", "silent", times=ALWAYS)
        began = time.monotonic()

        with pytest.raises(StorageUnavailable):
            runtime.context.store.get_range("health/probe", 0, 2)
        runtime.readiness.run_once()

        assert not runtime.readiness.current().store
        # Two calls; with the patience of a worker each takes at least a minute.
        assert time.monotonic() - began < 60
