"""Requests as a client in another process sees them: latency, and the server's CPU time."""

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import httpx
import psutil

from bench.deployments import Tenant
from bench.load.backlog import BODY

TIMEOUT_S = 30.0
SENDERS = 8
POST = "POST /v1/jobs"


@dataclass(frozen=True, slots=True)
class Timing:
    """What one kind of request took, seen by its client."""

    name: str
    seconds: tuple[float, ...]
    bytes: int
    failures: int

    def percentile_ms(self, share: float) -> float:
        """Latency that this share of the requests stayed under."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000


@dataclass(frozen=True, slots=True)
class Reading:
    """One kind of GET; `path` is asked for each request, so that ids and cursors vary."""

    name: str
    path: Callable[[], str]


class Requester:
    """A client of one API process with a connection that stays open."""

    def __init__(self, url: str, tenant: Tenant, api: psutil.Process) -> None:
        self.tenant = tenant
        self._api = api
        headers = {"Authorization": f"Bearer {tenant.key}"}
        limits = httpx.Limits(max_connections=SENDERS, max_keepalive_connections=SENDERS)
        self.http = httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_S, limits=limits)

    def read_in_turn(self, kinds: Sequence[Reading], rounds: int) -> list[Timing]:
        """Send each kind once a round, so that all meet the same conditions."""
        taken: dict[str, list[float]] = {kind.name: [] for kind in kinds}
        sizes: dict[str, int] = {}
        failures = dict.fromkeys(taken, 0)
        for _ in range(rounds):
            for kind in kinds:
                path = kind.path()
                began = time.perf_counter()
                response = self.http.get(path)
                taken[kind.name].append(time.perf_counter() - began)
                sizes[kind.name] = len(response.content)
                failures[kind.name] += not response.is_success
        return [
            Timing(name, tuple(seconds), sizes[name], failures[name])
            for name, seconds in taken.items()
        ]

    def cpu_of(self, kinds: Sequence[Reading], rounds: int) -> dict[str, float]:
        """Milliseconds of CPU that the API needs for one request of each kind."""
        idle = self._cpu_rate_idle()
        found = {}
        for kind in kinds:
            self.http.get(kind.path())
            before, began = self._cpu_s(), time.monotonic()
            for _ in range(rounds):
                self.http.get(kind.path())
            own = self._cpu_s() - before - idle * (time.monotonic() - began)
            found[kind.name] = max(0.0, own) / rounds * 1000
        return found

    def post_at_rate(self, per_second: float, duration_s: float) -> Timing:
        """Post jobs at fixed moments, whatever became of the ones before.

        Latency counts from the moment a request was due: one that queues in the client behind a
        slow one is slow, too.
        """
        count = int(per_second * duration_s)
        start = time.perf_counter() + 0.1
        with ThreadPoolExecutor(SENDERS) as pool:
            futures: list[Future[tuple[float, int, int]]] = []
            for number in range(count):
                due = start + number / per_second
                time.sleep(max(0.0, due - time.perf_counter()))
                futures.append(pool.submit(self._post, number, due))
            answers = [future.result() for future in futures]
        return Timing(
            f"{POST}, {per_second:g} a second",
            tuple(seconds for seconds, _, _ in answers),
            bytes=max(size for _, size, _ in answers),
            failures=sum(status != 202 for _, _, status in answers),
        )

    def cpu_of_post(self, count: int) -> float:
        """Milliseconds of CPU that the API needs to create one job."""
        idle = self._cpu_rate_idle()
        self._post(-1, time.perf_counter())
        before, began = self._cpu_s(), time.monotonic()
        for number in range(count):
            self._post(number, time.perf_counter())
        own = self._cpu_s() - before - idle * (time.monotonic() - began)
        return own / count * 1000

    def _post(self, number: int, due: float) -> tuple[float, int, int]:
        headers = {"Idempotency-Key": f"load-{number}-{due}"}
        response = self.http.post("/v1/jobs", json={**BODY, "seed": number + 1}, headers=headers)
        return time.perf_counter() - due, len(response.content), response.status_code

    def _cpu_s(self) -> float:
        times = self._api.cpu_times()
        return float(times.user + times.system)

    def _cpu_rate_idle(self) -> float:
        """CPU seconds a second of the process without our requests: the median of five looks."""
        rates = []
        for _ in range(5):
            before, began = self._cpu_s(), time.monotonic()
            time.sleep(0.5)
            rates.append((self._cpu_s() - before) / (time.monotonic() - began))
        return statistics.median(rates)
