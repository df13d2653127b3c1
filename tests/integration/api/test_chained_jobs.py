"""Jobs on the model version that an earlier job made."""

import pytest

from tests.integration.api.callers import Caller
from tests.integration.api.runs import finished_job, write_version
from tests.model_files import llama_folder


def test_version_of_an_earlier_job_is_a_model(caller: Caller) -> None:
    first = finished_job(caller)
    version = write_version(caller, first, llama_folder())
    body = {"version_id": version}

    shown = caller.get(f"/v1/jobs/{first}").json()
    second = caller.create_job(model=body)

    assert shown["result"]["model_version_id"] == version
    assert second["model"] == {"type": "version", "version_id": version, "job_id": first}
    assert caller.get(f"/v1/jobs?model_version_id={version}").json()["data"] == [
        caller.get(f"/v1/jobs/{second['id']}").json()
        | {"queue": {"class": "cpu", "position": None}, "config": {}}
    ]


@pytest.mark.parametrize(
    "base_source",
    [
        {"type": "hub", "repo_id": "org/base", "commit": "0" * 40},
        {"type": "path", "name": "org/base"},
        {"type": "version", "version_id": "mv_1", "job_id": "job_1", "base_name": "org/base"},
    ],
    ids=["hub", "folder", "chain"],
)
def test_job_on_a_version_names_the_model_at_the_start_of_its_chain(
    caller: Caller, base_source: dict[str, str]
) -> None:
    first = finished_job(caller)
    version = write_version(caller, first, llama_folder(), base_source)

    model = caller.create_job(model={"version_id": version})["model"]

    assert (model["job_id"], model["base_name"]) == (first, "org/base")
