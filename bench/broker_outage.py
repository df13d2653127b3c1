"""What a client notices of a broker in trouble: time to answer, and how long its jobs wait.

Starts API, worker and Redis with the default lease of 60 s, sends jobs one after the other while
the broker is disturbed, mends it, and waits for the jobs. Prints one line for each disturbance:
p50, p99 and maximum of POST /v1/jobs in ms, and the seconds from the broker's return to the start
of the first job and to the end of the last.

    .venv/bin/python -m bench.broker_outage [--requests 200] [--outage-s 45] [--only frozen]
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import redis
import sqlalchemy as sa

from app.db.tables import Job, Project
from tests.faults.rig import environment, rows_of
from tests.gateway import Gateway
from tests.servers import RedisServer
from tests.service import Service, common, wait_for

BODY = {"kind": "debias", "model": {"path": "tiny"}, "method": "fake", "config": {"steps": 1}}
END_TIMEOUT_S = 900.0


class Broker:
    """A Redis behind a gateway, and the ways it can be of no use."""

    def __init__(self, server: RedisServer, gateway: Gateway, client: redis.Redis) -> None:
        self._server = server
        self._gateway = gateway
        self._client = client

    def disturb(self, how: str) -> None:
        """Begin a disturbance."""
        match how:
            case "refused":
                self._gateway.refuse()
            case "silent":
                self._gateway.silence()
            case "frozen":
                self._process().suspend()
            case "full":
                self._client.config_set("maxmemory", 1)
            case "replica":
                self._client.execute_command("REPLICAOF", "127.0.0.1", "1")
            case "flushed":
                self._client.flushall()

    def mend(self) -> None:
        """End any of them."""
        self._gateway.restore()
        self._process().resume()
        self._client.config_set("maxmemory", 0)
        self._client.execute_command("REPLICAOF", "NO", "ONE")

    def _process(self) -> psutil.Process:
        return psutil.Process(self._server.pid).children()[0]


DISTURBANCES = ("none", "refused", "silent", "frozen", "full", "replica", "flushed")


def main() -> None:
    """Measure all disturbances, or the one asked for."""
    arguments = parse_arguments()
    print("disturbance     p50 ms  p99 ms  max ms  first job s  all jobs s")
    for how in [arguments.only] if arguments.only else DISTURBANCES:
        with tempfile.TemporaryDirectory() as folder, deployed(Path(folder)) as (service, broker):
            print(measure(service, broker, how, arguments), flush=True)


def measure(service: Service, broker: Broker, how: str, arguments: argparse.Namespace) -> str:
    """Disturb, send, mend, wait."""
    with httpx.Client(base_url=service.url, timeout=60) as client:
        send(client, 3)  # the first one imports and connects
        wait_until_ended(service, 3)
        broker.disturb(how)
        began = time.monotonic()
        times_ms = send(client, arguments.requests)
    wait_for(
        lambda: time.monotonic() - began >= arguments.outage_s,
        timeout_s=arguments.outage_s + 60,
        what="the end of the outage",
    )
    broker.mend()
    returned_at = datetime.now(UTC)
    wait_until_ended(service, 3 + arguments.requests)
    first_s, last_s = waited(service, returned_at, arguments.requests)
    p99 = statistics.quantiles(times_ms, n=100, method="inclusive")[98]
    return (
        f"{how:14s}{statistics.median(times_ms):8.0f}{p99:8.0f}{max(times_ms):8.0f}"
        f"{first_s:13.1f}{last_s:12.1f}"
    )


def send(client: httpx.Client, count: int) -> list[float]:
    """Create jobs one after the other; give the milliseconds that each took."""
    times_ms = []
    for _ in range(count):
        began = time.perf_counter()
        client.post("/v1/jobs", json=BODY).raise_for_status()
        times_ms.append((time.perf_counter() - began) * 1000)
    return times_ms


def wait_until_ended(service: Service, count: int) -> None:
    """Wait until so many jobs have succeeded."""
    ended = sa.select(sa.func.count()).select_from(Job).where(Job.status == "succeeded")
    with rows_of(service) as database:

        def all_ended() -> bool:
            with database.read() as session:
                return session.execute(ended).scalar_one() >= count

        wait_for(all_ended, timeout_s=END_TIMEOUT_S, what=f"the end of {count} jobs")


def waited(service: Service, returned_at: datetime, count: int) -> tuple[float, float]:
    """Seconds from the broker's return to the first start and the last end of the newest jobs."""
    newest = sa.select(Job.started_at, Job.finished_at).order_by(Job.id.desc()).limit(count)
    with rows_of(service) as database, database.read() as session:
        rows = session.execute(newest).all()
    first = min(row.started_at for row in rows).replace(tzinfo=UTC)
    last = max(row.finished_at for row in rows).replace(tzinfo=UTC)
    return (first - returned_at).total_seconds(), (last - returned_at).total_seconds()


@contextmanager
def deployed(folder: Path) -> Iterator[tuple[Service, Broker]]:
    """Run API and worker with the default lease, their Redis behind a gateway."""
    server, home = RedisServer(), folder / "home"
    with server as address, Gateway(urlsplit(address.url).port or 0) as gateway:
        settings = environment(folder) | {
            "DEBIAS_DATABASE_URL": f"sqlite:///{home}/debias.db",
            "DEBIAS_BROKER_URL": f"redis://127.0.0.1:{gateway.port}/0",
            "DEBIAS_JOBS_PER_CHILD": "1000",
        }
        del settings["DEBIAS_LEASE_TTL_S"]
        roles = {"api": ["api", "--port", "{port}"], "worker": ["worker", "--classes", "cpu"]}
        service = Service(home, common(home) | settings, roles, prepare=[["db", "upgrade"]])
        try:
            service.start()
            lift_quota(service)
            yield service, Broker(server, gateway, redis.Redis.from_url(address.url))
        finally:
            service.stop()


def lift_quota(service: Service) -> None:
    """Let the project have as many waiting jobs as the measurement sends."""
    with rows_of(service) as database, database.write() as session:
        session.execute(sa.update(Project).values(max_queued=1_000_000))


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=200, help="jobs to send per disturbance")
    parser.add_argument("--outage-s", type=float, default=45.0, help="how long it lasts at least")
    parser.add_argument("--only", choices=DISTURBANCES, help="measure this one only")
    return parser.parse_args()


if __name__ == "__main__":
    main()
