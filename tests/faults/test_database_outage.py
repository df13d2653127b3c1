"""PostgreSQL in trouble: the API says so and recovers, attempts that live are not taken away."""

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import psycopg
import pytest

from tests.faults.rig import (
    create,
    environment,
    outcomes,
    running,
    snapshot,
    wait_for_end,
    wait_until,
)
from tests.gateway import Gateway
from tests.server_addresses import PostgresAddress
from tests.servers import PostgresServer, RedisServer
from tests.service import Service, common, wait_for

# The API gives up on a silent database after 15 s for the statement and 5 s for a connection.
ANSWER_S = 30.0
RECOVERED_S = 60.0
# Longer than the lease, so that every lease looks expired when the database is back.
OUTAGE_S = 8.0
CROWD = "crowd"
REFUSE_WRITES = """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'could not extend file: No space left' USING ERRCODE = '53100'; END $$;
    CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON jobs EXECUTE FUNCTION refuse();
"""


@dataclass
class Stage:
    """A deployment, and how to disturb its database: each context is one disturbance."""

    service: Service
    address: PostgresAddress
    server: PostgresServer
    gateway: Gateway

    @contextmanager
    def refused(self) -> Iterator[None]:
        self.gateway.refuse()
        try:
            yield
        finally:
            self.gateway.restore()

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Stop the server, whose kernel keeps its connections open."""
        postmaster = self._postmaster()
        family = [postmaster, *postmaster.children(recursive=True)]
        for process in family:
            process.suspend()
        try:
            yield
        finally:
            for process in family:
                process.resume()

    @contextmanager
    def crashed(self) -> Iterator[None]:
        """Kill one backend: the server ends all others and recovers, as after a fail-over."""
        yield
        with self._admin() as admin:
            backend = psutil.Process(admin.info.backend_pid)
            backend.send_signal(signal.SIGQUIT)
            with suppress(psycopg.OperationalError):
                admin.execute("SELECT pg_sleep(5)")
        wait_for(self._answers, timeout_s=30, what="the recovery of PostgreSQL")

    @contextmanager
    def locked(self) -> Iterator[None]:
        with self._admin(autocommit=False) as outsider:
            outsider.execute("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
            yield
            outsider.rollback()

    @contextmanager
    def read_only(self) -> Iterator[None]:
        name = urlsplit(self.address.dsn).path[1:]
        with self._admin() as admin:
            admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
            self._terminate_others(admin)
            yield
            admin.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
            self._terminate_others(admin)

    @contextmanager
    def full(self) -> Iterator[None]:
        with self._admin() as admin:
            admin.execute(REFUSE_WRITES)
            yield
            admin.execute("DROP TRIGGER refuse ON jobs; DROP FUNCTION refuse")

    @contextmanager
    def out_of_connections(self) -> Iterator[None]:
        """Take every connection there is, again and again, until the service has none."""
        with ExitStack() as stack:
            admin = stack.enter_context(self._admin())

            def has_all() -> bool:
                self._terminate_others(admin, but=CROWD)
                with suppress(psycopg.OperationalError):
                    while True:
                        stack.enter_context(
                            psycopg.connect(self.address.dsn, application_name=CROWD)
                        )
                found = admin.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
                    " AND application_name <> %s AND pid <> pg_backend_pid()",
                    [CROWD],
                ).fetchone()
                return found == (0,)

            wait_for(has_all, timeout_s=30, what="a server without free connections")
            yield

    def _postmaster(self) -> psutil.Process:
        return psutil.Process(self.server.pid).children()[0]

    def _admin(self, *, autocommit: bool = True) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(self.address.dsn, connect_timeout=5, autocommit=autocommit)

    def _answers(self) -> bool:
        with suppress(psycopg.OperationalError), self._admin():
            return True
        return False

    def _terminate_others(
        self, admin: psycopg.Connection[tuple[object, ...]], *, but: str = ""
    ) -> None:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE"
            " datname = current_database() AND pid <> pg_backend_pid() AND application_name <> %s",
            [but or "nobody"],
        )


@contextmanager
def deployed(folder: Path, **settings: str) -> Iterator[Stage]:
    server = PostgresServer()
    with ExitStack() as stack:
        address = stack.enter_context(server).create_database("evenhand")
        with psycopg.connect(address.dsn, autocommit=True) as admin:
            # Test servers are told to be quick; one that crashes must know what it has promised.
            admin.execute("ALTER DATABASE evenhand SET synchronous_commit = on")
        port = urlsplit(address.dsn).port
        assert port is not None
        gateway = stack.enter_context(Gateway(port))
        urls = {
            "DEBIAS_DATABASE_URL": address.url.replace(f":{port}/", f":{gateway.port}/"),
            "DEBIAS_BROKER_URL": stack.enter_context(RedisServer()).url,
        }
        service = Service(
            folder / "home",
            common(folder / "home")
            | urls
            | environment(folder, **({"DEBIAS_JOBS_PER_CHILD": "100"} | settings)),
            {"api": ["api", "--port", "{port}"], "worker": ["worker", "--classes", "cpu"]},
            prepare=[["db", "upgrade"]],
        )
        stack.enter_context(running(service))
        yield Stage(service, address, server, gateway)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with deployed(tmp_path_factory.mktemp("database")) as started:
        yield started


def post(service: Service) -> httpx.Response:
    body = {"kind": "debias", "model": {"path": "tiny"}, "method": "fake", "seed": 7}
    return httpx.post(f"{service.url}/v1/jobs", json=body, timeout=ANSWER_S)


def assert_says_unavailable(service: Service) -> None:
    """Many at once: neither the pool of connections nor that of threads may be used up."""
    refused = post(service)
    assert refused.status_code == 503, refused.text
    assert refused.headers["content-type"] == "application/problem+json"
    assert int(refused.headers["retry-after"]) > 0
    assert httpx.get(f"{service.url}/livez", timeout=2).is_success


def sit_out(service: Service, seconds: float) -> None:
    """Let time pass as a service sees it, with clients that go on asking."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with suppress(httpx.TransportError):
            httpx.get(f"{service.url}/readyz", timeout=ANSWER_S)
            post(service)


def accepted(service: Service) -> str | None:
    answer = post(service)
    return str(answer.json()["id"]) if answer.status_code == 202 else None


@pytest.mark.slow
@pytest.mark.parametrize(
    "disturbance",
    ["refused", "silent", "locked", "read_only", "full", "out_of_connections", "crashed"],
)
def test_a_database_in_trouble_costs_no_job_and_no_attempt(
    stage: Stage, disturbance: str, tmp_path: Path
) -> None:
    service, gate = stage.service, tmp_path / "gate"
    running_job = create(service, wait_for=str(gate))
    wait_until(service, running_job, status="running", phase="debiasing")
    waiting_job = create(service)

    with getattr(stage, disturbance)():
        if disturbance != "crashed":
            assert_says_unavailable(service)
            sit_out(service, OUTAGE_S)
        gate.touch()

    afterwards = wait_for(
        lambda: accepted(service), timeout_s=RECOVERED_S, what="an answer as ever"
    )
    assert afterwards is not None
    for job_id in (running_job, waiting_job, afterwards):
        assert wait_for_end(service, job_id)["status"] == "succeeded"
        assert outcomes(service, job_id) == ["succeeded"]
        kinds = [kind for _, kind in snapshot(service, job_id)["events"]]
        assert kinds.count("job.succeeded") == 1


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_database_that_is_back_after_two_minutes_finds_every_attempt_alive(
    tmp_path: Path,
) -> None:
    gate = tmp_path / "gate"
    # A quarter of an hour without the database, times lease / 60 s, is when an attempt gives up.
    with deployed(tmp_path, DEBIAS_LEASE_TTL_S="10") as stage:
        service = stage.service
        running_job = create(service, wait_for=str(gate))
        wait_until(service, running_job, status="running", phase="debiasing")
        waiting_job = create(service)

        with stage.refused():
            sit_out(service, 60.0)
            gate.touch()
            sit_out(service, 60.0)

        for job_id in (running_job, waiting_job):
            assert wait_for_end(service, job_id)["status"] == "succeeded"
            assert outcomes(service, job_id) == ["succeeded"]
