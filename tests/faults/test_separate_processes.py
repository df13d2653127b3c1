"""API and workers as processes of their own: one is frozen or killed, the others go on."""

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.faults.rig import (
    LEASE_TTL_S,
    create,
    environment,
    running,
    snapshot,
    wait_for_end,
    wait_until,
    wait_until_gone,
)
from tests.server_addresses import RedisAddress
from tests.service import Service, common


@pytest.fixture
def service(tmp_path: Path, redis_server: RedisAddress) -> Iterator[Service]:
    """An API with one worker; a second one is started by the test."""
    home = tmp_path / "home"
    home.mkdir()
    urls = {
        "DEBIAS_DATABASE_URL": f"sqlite:///{home}/debias.db",
        "DEBIAS_BROKER_URL": redis_server.database_url(14),
    }
    worker = ["worker", "--classes", "cpu"]
    deployment = Service(
        home,
        common(home) | urls | environment(tmp_path),
        {"api": ["api", "--port", "{port}"], "worker": worker},
        prepare=[["db", "upgrade"]],
    )
    with running(deployment):
        deployment.roles["second"] = worker
        yield deployment


def test_a_worker_that_comes_back_changes_nothing_and_its_child_ends(
    service: Service, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    job_id = create(service, wait_for=str(gate))
    wait_until(service, job_id, status="running", phase="debiasing")
    parent = psutil.Process(service.processes["worker"].pid)
    frozen = [parent, *parent.children(recursive=True)]
    for process in frozen:
        process.send_signal(signal.SIGSTOP)
    service.start_role("second")
    wait_until(service, job_id, attempt=2, phase="debiasing")
    gate.touch()
    assert wait_for_end(service, job_id)["status"] == "succeeded"
    before = snapshot(service, job_id)

    for process in frozen:
        process.send_signal(signal.SIGCONT)
    wait_until_gone(frozen[1:], timeout_s=LEASE_TTL_S * 5)

    assert snapshot(service, job_id) == before
    assert [outcome for _, outcome in before["attempts"]] == ["lost", "succeeded"]
    following = wait_for_end(service, create(service))
    assert following["status"] == "succeeded"


def test_a_job_does_not_notice_that_the_api_was_killed(service: Service, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job_id = create(service, wait_for=str(gate))
    wait_until(service, job_id, status="running", phase="debiasing")

    service.processes["api"].kill()
    service.processes["api"].wait()
    gate.touch()
    service.start_role("api")
    service.wait_until_ready()
    job = wait_for_end(service, job_id)

    assert (job["status"], job["attempt"]) == ("succeeded", 1)
