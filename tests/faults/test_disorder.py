"""Many jobs in flight while everything that can die does, on both deployments."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.disorder import Disorder, assert_each_done_once, wait_for_all
from tests.faults.rig import embedded_service, environment, running
from tests.server_addresses import RedisAddress
from tests.servers import RedisServer
from tests.service import Service, production

JOBS = 30
ALL_JOBS_TIMEOUT_S = 300.0
EMBEDDED = ("kill_child", "kill_worker", "stop_worker", "freeze_worker", "kill_api",
            "forget_messages")  # fmt: skip
PRODUCTION = (*EMBEDDED, "refuse_database")


@pytest.fixture(scope="module")
def own_redis() -> Iterator[RedisAddress]:
    """A broker that may be emptied."""
    with RedisServer() as address:
        yield address


@pytest.fixture(params=["embedded", "production"])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    if request.param == "embedded":
        deployment = embedded_service(tmp_path)
    else:
        urls: Callable[[], dict[str, str]] = request.getfixturevalue("production_urls")
        broker = {"DEBIAS_BROKER_URL": request.getfixturevalue("own_redis").url}
        deployment = production(tmp_path / "home", urls() | broker, **environment(tmp_path))
        deployment.roles["worker-2"] = deployment.roles["worker"]
    with running(deployment):
        yield deployment


def job(seed: int) -> dict[str, Any]:
    return {
        "kind": "debias",
        "model": {"path": "tiny"},
        "method": "fake",
        "config": {"steps": 4, "step_s": 0.05},
        "seed": seed,
        "retry": {"max_attempts": 5},
    }


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2])
def test_no_job_is_lost_and_no_effect_doubled_whatever_dies(
    service: Service, request: pytest.FixtureRequest, seed: int
) -> None:
    disorder = Disorder(service)
    steps = list(EMBEDDED if "serve" in service.roles else PRODUCTION) * 2
    random.Random(seed).shuffle(steps)
    with service.client() as client:
        for number in range(JOBS):
            client.jobs.create(job(number))

    for step in steps:
        getattr(disorder, step)()

    wait_for_all(service, JOBS, timeout_s=ALL_JOBS_TIMEOUT_S)
    assert_each_done_once(service, JOBS)
