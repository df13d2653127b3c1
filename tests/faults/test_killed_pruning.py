"""A real Fairness Pruning job whose processes are killed ends with the undisturbed checkpoint."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.domain.states import Phase
from tests.faults.disorder import Disorder
from tests.faults.rig import (
    checkpoint_digest,
    get,
    outcomes,
    running,
    snapshot,
    wait_for_end,
)
from tests.service import Service, embedded, production, wait_for

# Long enough for a child that imports torch on a busy machine.
LEASE_TTL_S = "15"


@pytest.fixture(
    scope="module", params=["embedded", pytest.param("production", marks=pytest.mark.slow)]
)
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, shared_data: Path
) -> Iterator[Service]:
    """A deployment of its own: its processes are killed."""
    home = tmp_path_factory.mktemp(request.param)
    settings = {
        "DEBIAS_MODELS_DIR": str(shared_data / "models"),
        "DEBIAS_LEASE_TTL_S": LEASE_TTL_S,
    }
    if request.param == "embedded":
        deployment = embedded(home, **settings)
    else:
        urls: Callable[[], dict[str, str]] = request.getfixturevalue("production_urls")
        deployment = production(home, urls(), **settings)
    with running(deployment):
        yield deployment


@pytest.fixture(scope="module")
def spec(shared_data: Path) -> dict[str, Any]:
    golden = json.loads((shared_data / "golden" / "optipfair_stories260k.json").read_text())
    pairs = [{"prompt_1": one, "prompt_2": two} for one, two in golden["equal_length_pairs"]]
    config = {
        "pairs": pairs,
        "preset": "article",
        "fraction": 0.02,
        "generation": {"max_pairs": 0},
        "plots": [],
    }
    return {
        "kind": "debias",
        "model": {"path": "stories260k-llama"},
        "method": "fairness_pruning",
        "config": config,
        "seed": 0,
    }


@pytest.fixture(scope="module")
def undisturbed_digest(service: Service, spec: dict[str, Any]) -> str:
    job_id = create(service, spec)
    assert wait_for_end(service, job_id)["status"] == "succeeded"
    return checkpoint_digest(service, job_id)


def create(service: Service, spec: dict[str, Any]) -> str:
    with service.client() as client:
        return str(client.jobs.create(spec)["id"])


def wait_for_phase(service: Service, job_id: str, phase: str) -> None:
    """Wait until the job has come to this phase; it may be past it before anybody looks."""
    phases = list(Phase)
    wanted = {str(later) for later in phases[phases.index(Phase(phase)) :]}
    wait_for(
        lambda: get(service, job_id)["phase"] in wanted, timeout_s=120, what=f"{job_id} in {phase}"
    )


@pytest.mark.parametrize(
    ("victim", "phase"),
    [
        pytest.param("child", "evaluating_before", marks=pytest.mark.slow),
        ("child", "debiasing"),
        pytest.param("worker", "evaluating_before", marks=pytest.mark.slow),
        pytest.param("worker", "debiasing", marks=pytest.mark.slow),
        pytest.param("api", "evaluating_before", marks=pytest.mark.slow),
    ],
)
@pytest.mark.timeout(300)
def test_a_killed_process_changes_neither_the_end_of_the_job_nor_its_checkpoint(
    service: Service, spec: dict[str, Any], undisturbed_digest: str, victim: str, phase: str
) -> None:
    job_id = create(service, spec)
    wait_for_phase(service, job_id, phase)

    getattr(Disorder(service), f"kill_{victim}")()
    job = wait_for_end(service, job_id)

    assert job["status"] == "succeeded", job["error"]
    rows = snapshot(service, job_id)
    assert [type_ for _, type_ in rows["events"]].count("job.succeeded") == 1
    assert [seq for seq, _ in rows["events"]] == list(range(1, len(rows["events"]) + 1))
    assert checkpoint_digest(service, job_id) == undisturbed_digest
    before, last = outcomes(service, job_id)[:-1], outcomes(service, job_id)[-1]
    assert last == "succeeded"
    # An API of its own may die unnoticed by the job; an embedded one takes its worker with it.
    assert before in ([["lost"], ["drained"]] if victim != "api" else [[], ["lost"], ["drained"]])
