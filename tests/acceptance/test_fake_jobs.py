"""Jobs without torch through HTTP, on both deployments."""

import hashlib
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service import Service, run_job, wait_for

MODEL = {"path": "stories260k-llama"}


def spec(**config: Any) -> dict[str, Any]:
    return {"kind": "debias", "model": MODEL, "method": "fake", "config": config, "seed": 1}


def test_a_job_runs_from_the_request_to_files_that_match_their_hashes(
    service: Service, tmp_path: Path
) -> None:
    job = run_job(service, spec(output_bytes=4096))

    with service.client() as client:
        client.download(job["id"], tmp_path)
    listed = httpx.get(f"{service.url}/v1/jobs/{job['id']}/artifacts").raise_for_status().json()
    assert job["status"] == "succeeded", job["error"]
    for artifact in listed["data"]:
        data = (tmp_path / artifact["name"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == artifact["sha256"]
    assert json.loads((tmp_path / "report.json").read_text())["fake_bias"]["after"] == 1.5


def test_events_have_no_gap_and_end_with_the_success(service: Service) -> None:
    job = run_job(service, spec())

    page = httpx.get(f"{service.url}/v1/jobs/{job['id']}/events?limit=100").raise_for_status()
    events = page.json()["data"]

    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["type"] == "job.succeeded"


def test_what_an_engine_logs_is_the_jobs_log(service: Service) -> None:
    job = run_job(service, spec(log_lines=2))

    answer = httpx.get(
        f"{service.url}/v1/jobs/{job['id']}/logs", headers={"Accept": "text/plain"}, timeout=10
    )

    assert "fake line 2 of debiasing" in answer.raise_for_status().text


def test_the_output_of_a_job_is_a_model_for_the_next_one(service: Service) -> None:
    first = run_job(service, spec())
    version = first["result"]["model_version_id"]

    second = run_job(service, spec() | {"model": {"version_id": version}})

    assert second["status"] == "succeeded", second["error"]


@pytest.mark.parametrize("code", ["unsafe_model_format", "numerical_failure"])
def test_a_failed_job_says_what_happened_and_what_to_do(service: Service, code: str) -> None:
    job = run_job(service, spec(trouble="fail", fail_code=code))

    assert (job["status"], job["error"]["code"]) == ("failed", code)
    assert job["error"]["phase"] == "debiasing"
    assert job["error"]["hint"]


def test_a_failed_job_can_be_tried_again_and_keeps_its_history(service: Service) -> None:
    job = run_job(service, spec(trouble="fail", trouble_times=1))

    with service.client() as client:
        client.jobs.retry(job["id"])
        done = client.jobs.wait(job["id"], timeout_s=60)

    assert (done["status"], done["attempt"]) == ("succeeded", 2)


def test_a_running_job_can_be_cancelled(service: Service, tmp_path: Path) -> None:
    with service.client() as client:
        job_id = client.jobs.create(spec(wait_for=str(tmp_path / "never")))["id"]
        wait_for(
            lambda: client.jobs.get(job_id)["phase"] == "debiasing", timeout_s=60, what="the phase"
        )
        client.jobs.cancel(job_id)
        job = client.jobs.wait(job_id, timeout_s=60)

    assert (job["status"], job["error"]) == ("cancelled", None)
