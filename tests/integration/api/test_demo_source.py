"""Jobs on the models that come with the package."""

from tests.integration.api.callers import Caller

JOB = {"model": {"demo": "tiny-llama"}, "method": "fake"}


def test_job_names_its_demo_model(caller: Caller) -> None:
    body = caller.post("/v1/jobs", json=JOB).json()

    assert body["model"] == {"type": "demo", "name": "tiny-llama"}


def test_spec_of_a_job_asks_for_the_same_demo_model(caller: Caller) -> None:
    job = caller.post("/v1/jobs", json=JOB).json()

    spec = caller.get(f"/v1/jobs/{job['id']}/spec").json()

    assert spec["model"] == {"demo": "tiny-llama"}


def test_openapi_document_offers_a_job_that_runs_without_any_set_up(caller: Caller) -> None:
    document = caller.get("/openapi.json").json()
    content = document["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]

    examples = content["application/json"]["examples"]

    assert [example["value"]["model"] for example in examples.values()][:1] == [
        {"demo": "tiny-llama"}
    ]
