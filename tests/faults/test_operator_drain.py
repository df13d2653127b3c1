"""A worker that an operator drains over HTTP ends as on SIGTERM, and nothing is lost."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.faults.rig import (
    END_TIMEOUT_S,
    create,
    embedded_service,
    outcomes,
    running,
    wait_for_end,
    wait_until,
)
from tests.service import Service, wait_for


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with running(embedded_service(tmp_path)) as started:
        yield started


def workers(service: Service) -> dict[str, dict[str, Any]]:
    answer = httpx.get(f"{service.url}/v1/admin/workers")
    return {worker["id"]: worker for worker in answer.raise_for_status().json()["data"]}


def test_a_drained_worker_gives_its_job_back_and_ends(service: Service, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job_id = create(service, wait_for=str(gate))
    wait_until(service, job_id, phase="debiasing")
    (worker_id,) = workers(service)
    parent = service.process_of("worker")

    asked = httpx.post(f"{service.url}/v1/admin/workers/{worker_id}/drain")
    again = httpx.post(f"{service.url}/v1/admin/workers/{worker_id}/drain")
    wait_until(service, job_id, attempt=2, phase="debiasing")
    gate.touch()
    job = wait_for_end(service, job_id)

    assert (asked.status_code, again.status_code) == (202, 202)
    assert (asked.json()["draining"], asked.json()["current_job_id"]) == (True, job_id)
    assert (job["status"], outcomes(service, job_id)) == ("succeeded", ["drained", "succeeded"])
    wait_for(lambda: not parent.is_running(), timeout_s=END_TIMEOUT_S, what="the worker's end")
    found = workers(service)
    assert found.pop(worker_id)["state"] == "stopped"
    assert not any(worker["draining"] for worker in found.values())
    refused = httpx.post(f"{service.url}/v1/admin/workers/{worker_id}/drain")
    assert (refused.status_code, refused.json()["code"]) == (409, "invalid_state")
