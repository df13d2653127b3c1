"""An S3 store that is away while a job uploads: the attempt waits, or the next one finishes it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.rig import (
    create,
    environment,
    get,
    outcomes,
    running,
    snapshot,
    wait_for_end,
    wait_until,
)
from tests.s3_gateway import S3Relay, relayed_s3
from tests.server_addresses import RedisAddress, S3Address
from tests.service import Service, common, wait_for

# Larger than a part, so that it goes in several; checkpoints do not. So a store that takes no
# parts is away for the upload only.
OUTPUT_BYTES = 20 << 20
ALWAYS = 10_000
# Eight tries of a file, each with the retries of the store's client.
GIVEN_UP_S = 400.0


@dataclass
class Stage:
    """A deployment and the way to its store."""

    service: Service
    relay: S3Relay


@pytest.fixture
def stage(
    tmp_path: Path, redis_server: RedisAddress, s3_server: S3Address, s3_bucket: str
) -> Iterator[Stage]:
    home = tmp_path / "home"
    with relayed_s3(s3_server) as relay:
        urls = {
            "DEBIAS_DATABASE_URL": f"sqlite:///{home}/debias.db",
            "DEBIAS_BROKER_URL": redis_server.database_url(13),
            "DEBIAS_STORE_URL": f"{s3_bucket}/objects",
            "DEBIAS_S3_ENDPOINT_URL": relay.address.endpoint_url,
            "DEBIAS_S3_REGION": relay.address.region,
            "DEBIAS_S3_ACCESS_KEY_ID": relay.address.access_key_id,
            "DEBIAS_S3_SECRET_ACCESS_KEY": relay.address.secret_access_key,
        }
        service = Service(
            home,
            common(home) | urls | environment(tmp_path),
            {"api": ["api", "--port", "{port}"], "worker": ["worker", "--classes", "cpu"]},
            prepare=[["db", "upgrade"]],
        )
        with running(service):
            yield Stage(service, relay)


@pytest.mark.slow
def test_an_attempt_waits_in_its_upload_for_a_store_that_comes_back(stage: Stage) -> None:
    service, relay = stage.service, stage.relay
    relay.fail("start", "503", times=ALWAYS)
    job_id = create(service, output_bytes=OUTPUT_BYTES)
    wait_until(service, job_id, status="running", phase="uploading")
    before = relay.count("start")
    # More than the client of the store tries by itself.
    wait_for(lambda: relay.count("start") > before + 7, timeout_s=90, what="another try")

    relay.mend()

    assert wait_for_end(service, job_id)["status"] == "succeeded"
    assert outcomes(service, job_id) == ["succeeded"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_store_that_stays_away_fails_the_attempt_and_the_next_one_repeats_little(
    stage: Stage,
) -> None:
    service, relay = stage.service, stage.relay
    relay.fail("start", "503", times=ALWAYS)
    job_id = create(service, output_bytes=OUTPUT_BYTES)
    wait_for(
        lambda: get(service, job_id)["attempt"] >= 1 and "failed" in outcomes(service, job_id),
        timeout_s=GIVEN_UP_S,
        what="an attempt that gave up",
    )

    relay.mend()
    job = wait_for_end(service, job_id)

    assert job["status"] == "succeeded"
    assert outcomes(service, job_id) == ["failed", "succeeded"]
    kinds = [kind for _, kind in snapshot(service, job_id)["events"]]
    assert kinds.count("evaluation.completed") == 2  # before, once, and that of the result
    with service.client() as client:
        events = [dict(event) for event in client.jobs.stream_events(job_id)]
    scheduled = next(event for event in events if event["type"] == "job.retry_scheduled")
    restored = [event["data"].get("action") for event in events].count("restored")
    assert scheduled["data"]["error"]["code"] == "upload_failed"
    assert restored >= 2  # both evaluations
