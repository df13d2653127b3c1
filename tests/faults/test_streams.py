"""A stream of events over everything that can interrupt it."""

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.faults.rig import create, environment, running, wait_for_end, wait_until
from tests.gateway import Gateway
from tests.server_addresses import PostgresAddress, RedisAddress
from tests.service import Service, common, wait_for

STEPS = 40
PAUSE_S = 0.2


class Follower:
    """A client as service.md wants it: after every break it goes on with the last id it has."""

    def __init__(self, service: Service, job_id: str) -> None:
        self._url = f"{service.url}/v1/jobs/{job_id}/events"
        self._pause = threading.Event()
        self.numbers: list[int] = []
        self.breaks = 0
        self.done: dict[str, str] | None = None
        self.thread = threading.Thread(target=self._follow, daemon=True)
        self.thread.start()

    def _follow(self) -> None:
        while self.done is None:
            with suppress(httpx.HTTPError):
                self._read_once()
            if self.done is None:
                self.breaks += 1
                self._pause.wait(PAUSE_S)

    def _read_once(self) -> None:
        headers = {"Accept": "text/event-stream"}
        if self.numbers:
            headers["Last-Event-ID"] = str(self.numbers[-1])
        with httpx.stream("GET", self._url, headers=headers, timeout=30) as answer:
            if not answer.is_success:
                return
            event = ""
            for line in answer.iter_lines():
                name, _, value = line.partition(": ")
                if name == "event":
                    event = value
                elif name == "id":
                    self.numbers.append(int(value))
                elif name == "data" and event == "done":
                    self.done = json.loads(value)


@pytest.fixture
def gateway(postgres_server: PostgresAddress) -> Iterator[Gateway]:
    port = urlsplit(postgres_server.dsn).port
    assert port is not None
    with Gateway(port) as opened:
        yield opened


@pytest.fixture
def service(
    tmp_path: Path, gateway: Gateway, postgres_server: PostgresAddress, redis_server: RedisAddress
) -> Iterator[Service]:
    address = postgres_server.create_database(f"streams_{gateway.port}")
    urls = {
        "DEBIAS_DATABASE_URL": address.url.replace(f":{gateway.target_port}/", f":{gateway.port}/"),
        "DEBIAS_BROKER_URL": redis_server.database_url(15),
    }
    deployment = Service(
        tmp_path / "home",
        common(tmp_path / "home") | urls | environment(tmp_path),
        {"api": ["api", "--port", "{port}"], "worker": ["worker", "--classes", "cpu"]},
        prepare=[["db", "upgrade"]],
    )
    with running(deployment):
        yield deployment
    postgres_server.drop_database(f"streams_{gateway.port}")


@pytest.mark.slow
def test_a_client_that_comes_back_sees_every_event_once_whatever_broke_its_stream(
    service: Service, gateway: Gateway, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    job_id = create(service, wait_for=str(gate), steps=STEPS, step_s=0.1)
    follower = Follower(service, job_id)
    wait_until(service, job_id, status="running", phase="debiasing")

    service.processes["api"].kill()
    service.processes["api"].wait()
    service.start_role("api")
    service.wait_until_ready()
    seen = len(follower.numbers)
    gate.touch()
    wait_for(lambda: len(follower.numbers) > seen, timeout_s=60, what="a stream that goes on")
    # An idle stream asks for nothing and lives on; one that reads ends, and its client comes back.
    gateway.refuse()
    wait_for(
        lambda: httpx.get(f"{service.url}/readyz", timeout=30).status_code == 503,
        timeout_s=60,
        what="an API without a database",
    )
    gateway.restore()
    job = wait_for_end(service, job_id)
    follower.thread.join(60)

    assert job["status"] == "succeeded"
    assert follower.done == {"status": "succeeded"}
    assert follower.breaks >= 1
    # Progress is kept thinned; what is there has come once, and in order.
    with service.client() as client:
        listed = [event["seq"] for event in client.jobs.stream_events(job_id)]
    assert follower.numbers == sorted(set(follower.numbers))
    assert set(listed) <= set(follower.numbers)
