"""Jobs that only diagnose, and jobs that export to GGUF, end once although a child is killed.

The child dies when everything is made and uploaded and nothing of it is committed: the second
attempt makes all files again, and they have the same bytes.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.faults.rig import outcomes, running, snapshot, wait_for_end
from tests.service import Service, embedded, run_job

# Two deployments; what is fast is in test_killed_pruning.
pytestmark = pytest.mark.slow

# Long enough for a child that imports torch on a busy machine.
LEASE_TTL_S = "15"
PAIRS = [
    {"prompt_1": "The boy was a doctor", "prompt_2": "The girl was a doctor", "category": "a"},
    {"prompt_1": "A man sat there", "prompt_2": "A woman sat there", "category": "b"},
]
QUIET = {"generation": {"max_pairs": 0}, "plots": ["mean_diff"]}
SPECS: dict[str, dict[str, Any]] = {
    "diagnosis": {"config": {"pairs": PAIRS, "diagnose_only": True, **QUIET}},
    "gguf": {
        "config": {
            "pairs": PAIRS,
            "fraction": 0.1,
            "round_to_multiple": 64,
            "controls": {"enabled": False},
            **QUIET,
        },
        "outputs": {"formats": ["safetensors", "gguf"]},
    },
}
# These name the job, its times and its attempts.
ABOUT_THE_RUN = ("report.", "debias_report.json", "README.md", "resolved_spec", "environment")


def spec(kind: str) -> dict[str, Any]:
    return {"model": {"demo": "tiny-llama"}, "method": "fairness_pruning", **SPECS[kind]}


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Service]]:
    """One deployment that works, and one whose children die in every first attempt."""
    settings = {"DEBIAS_LEASE_TTL_S": LEASE_TTL_S}
    sound = embedded(tmp_path_factory.mktemp("sound"), **settings)
    deadly = embedded(tmp_path_factory.mktemp("deadly"), DEBIAS_FAULT="uploaded:1", **settings)
    with running(sound), running(deadly):
        yield sound, deadly


def results(service: Service, job_id: str) -> dict[str, str]:
    """Name and digest of every file that does not speak of the run itself."""
    return {
        name: digest
        for name, digest in (tuple(row) for row in snapshot(service, job_id)["artifacts"])
        if not any(part in name for part in ABOUT_THE_RUN)
    }


@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.timeout(300)
def test_a_killed_child_changes_neither_the_end_nor_the_files(
    services: tuple[Service, Service], kind: str
) -> None:
    sound, deadly = services
    undisturbed = run_job(sound, spec(kind))
    with deadly.client() as client:
        job_id = str(client.jobs.create(spec(kind))["id"])

    job = wait_for_end(deadly, job_id)

    assert job["status"] == "succeeded", job["error"]
    assert outcomes(deadly, job_id) == ["lost", "succeeded"]
    types = [type_ for _, type_ in snapshot(deadly, job_id)["events"]]
    assert [types.count(type_) for type_ in ("job.succeeded", "artifact.created")] == [1, 1]
    found = results(deadly, job_id)
    assert ("gguf/model.gguf" in found) == (kind == "gguf")
    assert "plots/amplification.png" in found
    assert found == results(sound, undisturbed["id"])
