"""A broker that cannot be used costs time, and nothing else."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
import redis

from tests.faults.rig import (
    create,
    embedded_service,
    environment,
    outcomes,
    running,
    wait_for_end,
    wait_until,
)
from tests.gateway import Gateway
from tests.servers import RedisServer
from tests.service import Service, common, wait_for

# The readiness of a process is looked at every 30 s.
NOTICED_S = 60.0
# A request that waited for the broker would take its socket timeout, 5 s and more. How much less
# it takes is measured in bench/broker_outage.py, on a machine that does nothing else.
ANSWER_S = 3.0
POSTS = 10
# Else most of the time goes into starting children.
MANY = {"DEBIAS_JOBS_PER_CHILD": "100"}


@dataclass
class Stage:
    """A deployment, and how to disturb its broker: each context is one disturbance."""

    service: Service
    redis: Callable[[], redis.Redis]
    server: Callable[[], psutil.Process]
    gateway: Gateway | None = None
    # What was started by a disturbance and is needed to the end.
    servers: ExitStack = field(default_factory=ExitStack)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        process = self.server()
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    @contextmanager
    def full(self) -> Iterator[None]:
        self.redis().config_set("maxmemory", 1)
        try:
            yield
        finally:
            self.redis().config_set("maxmemory", 0)

    @contextmanager
    def a_replica(self) -> Iterator[None]:
        self.redis().execute_command("REPLICAOF", "127.0.0.1", "1")
        try:
            yield
        finally:
            self.redis().execute_command("REPLICAOF", "NO", "ONE")

    @contextmanager
    def refused(self) -> Iterator[None]:
        assert self.gateway is not None
        self.gateway.refuse()
        try:
            yield
        finally:
            self.gateway.restore()

    @contextmanager
    def silent(self) -> Iterator[None]:
        assert self.gateway is not None
        self.gateway.silence()
        try:
            yield
        finally:
            self.gateway.restore()

    @contextmanager
    def replaced_by_an_empty_one(self) -> Iterator[None]:
        """Another server, that knows nothing, comes up at the address of the one that is gone."""
        assert self.gateway is not None
        with self.refused():
            yield
            # A server that nobody holds any more ends at the next garbage collection.
            successor = self.servers.enter_context(RedisServer())
            self.gateway.target_port = _port_of(successor.url)


@pytest.fixture(scope="module")
def embedded_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    service = embedded_service(tmp_path_factory.mktemp("broker-embedded"), **MANY)

    def server() -> psutil.Process:
        children = service.process_of("serve").children()
        return next(child for child in children if "redis-server" in child.name())

    with running(service):
        socket = str(service.home / "redis.sock")
        yield Stage(service, lambda: redis.Redis(unix_socket_path=socket), server)


@pytest.fixture(scope="module")
def separate_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("broker-separate")
    server = RedisServer()
    with server as address, Gateway(_port_of(address.url)) as gateway:
        home = folder / "home"
        urls = {
            "DEBIAS_DATABASE_URL": f"sqlite:///{home}/debias.db",
            "DEBIAS_BROKER_URL": f"redis://127.0.0.1:{gateway.port}/0",
        }
        service = Service(
            home,
            common(home) | urls | environment(folder, **MANY),
            {"api": ["api", "--port", "{port}"], "worker": ["worker", "--classes", "cpu"]},
            prepare=[["db", "upgrade"]],
        )
        guard = psutil.Process(server.pid)
        with ExitStack() as servers, running(service):
            yield Stage(
                service,
                lambda: redis.Redis.from_url(address.url),
                lambda: guard.children()[0],
                gateway,
                servers,
            )


EMBEDDED = ("frozen", "full", "a_replica")
SEPARATE = ("frozen", "full", "a_replica", "refused", "silent", "replaced_by_an_empty_one")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("deployment", "disturbance"),
    [
        *(("embedded_stage", name) for name in EMBEDDED),
        *(("separate_stage", name) for name in SEPARATE),
    ],
)
def test_a_broker_that_cannot_be_used_costs_time_only(
    deployment: str, disturbance: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    stage: Stage = request.getfixturevalue(deployment)
    service, gate = stage.service, tmp_path / "gate"
    begun = create(service, wait_for=str(gate))
    wait_until(service, begun, status="running", phase="debiasing")

    with getattr(stage, disturbance)():
        waiting, times_s = zip(*(timed_create(service) for _ in range(POSTS)), strict=True)
        wait_for(lambda: readiness(service) == (200, "degraded"), timeout_s=NOTICED_S,
                 what="a readiness of degraded")  # fmt: skip
        alive = httpx.get(f"{service.url}/livez", timeout=2)
        gate.touch()
        in_the_middle = wait_for_end(service, begun)

    assert max(times_s) < ANSWER_S
    assert alive.is_success
    assert (in_the_middle["status"], in_the_middle["attempt"]) == ("succeeded", 1)
    for job_id in waiting:
        assert wait_for_end(service, job_id)["status"] == "succeeded"
        assert outcomes(service, job_id) == ["succeeded"]
    wait_for(lambda: readiness(service) == (200, "ready"), timeout_s=NOTICED_S, what="readiness")


@pytest.mark.slow
def test_a_worker_whose_connection_died_unseen_ends_to_be_started_again(
    separate_stage: Stage,
) -> None:
    service = separate_stage.service
    assert separate_stage.gateway is not None
    assert wait_for_end(service, create(service))["status"] == "succeeded"

    separate_stage.gateway.strand()
    job_id = create(service)
    service.processes["worker"].wait(60)
    service.start_role("worker")

    assert wait_for_end(service, job_id)["status"] == "succeeded"
    assert outcomes(service, job_id) == ["succeeded"]


def timed_create(service: Service) -> tuple[str, float]:
    began = time.monotonic()
    job_id = create(service)
    return job_id, time.monotonic() - began


def readiness(service: Service) -> tuple[int, str]:
    answer = httpx.get(f"{service.url}/readyz", timeout=10)
    return answer.status_code, str(answer.json().get("status"))


def _port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port
