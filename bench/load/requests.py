"""Requests as a client in another process sees them: latency, and the server's CPU time."""

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import httpx
import psutil

from bench.deployments import Tenant
from bench.load.backlog import BODY
from bench.load.metronome import Pace
from bench.load.probes import cpu_s, cpu_share

TIMEOUT_S = 30.0
SENDERS = 8
IDLE_LOOK_S = 0.5
POST = "POST /v1/jobs"


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that was answered; the moments are those of `time.perf_counter`."""

    began: float
    ended: float
    bytes: int
    succeeded: bool


@dataclass(frozen=True, slots=True)
class Timing:
    """What one kind of request took, seen by its client."""

    name: str
    sent: tuple[Sent, ...]

    @property
    def bytes(self) -> int:
        """The size of the largest answer."""
        return max(request.bytes for request in self.sent)

    @property
    def failures(self) -> int:
        """How many were not answered as they should be."""
        return sum(not request.succeeded for request in self.sent)

    def percentile_ms(self, share: float, pace: Pace | None = None) -> float:
        """Latency that this share of the requests stayed under.

        With `pace` the time in which the machine itself was slow does not count. What queued up
        meanwhile does.
        """
        ordered = sorted(
            one.ended - one.began - (pace.slow_s(one.began, one.ended) if pace else 0.0)
            for one in self.sent
        )
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000


@dataclass(frozen=True, slots=True)
class Reading:
    """One kind of GET; `path` is asked for each request, so that ids and cursors vary."""

    name: str
    path: Callable[[], str]


class Requester:
    """A client of the API processes, one after the other, with connections that stay open."""

    def __init__(self, urls: Sequence[str], tenant: Tenant, apis: Sequence[psutil.Process]) -> None:
        self.tenant = tenant
        self._apis = apis
        headers = {"Authorization": f"Bearer {tenant.key}"}
        limits = httpx.Limits(max_connections=SENDERS, max_keepalive_connections=SENDERS)
        self._clients = [
            httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_S, limits=limits)
            for url in urls
        ]
        self._turns = itertools.count()

    def get(self, path: str) -> httpx.Response:
        """Ask the process whose turn it is."""
        return self._client().get(path)

    def read_in_turn(self, kinds: Sequence[Reading], rounds: int) -> list[Timing]:
        """Send each kind once a round, so that all meet the same conditions."""
        sent: dict[str, list[Sent]] = {kind.name: [] for kind in kinds}
        for number in range(rounds):
            client = self._clients[number % len(self._clients)]
            for kind in kinds:
                path = kind.path()
                began = time.perf_counter()
                response = client.get(path)
                ended = time.perf_counter()
                size = len(response.content)
                sent[kind.name].append(Sent(began, ended, size, response.is_success))
        return [Timing(name, tuple(requests)) for name, requests in sent.items()]

    def cpu_of(self, kinds: Sequence[Reading], rounds: int) -> dict[str, float]:
        """Milliseconds of CPU that the API needs for one request of each kind."""
        idle = self._cpu_rate_idle()
        found = {}
        for kind in kinds:
            self.get(kind.path())
            before, began = cpu_s(self._apis), time.monotonic()
            for _ in range(rounds):
                self.get(kind.path())
            own = cpu_s(self._apis) - before - idle * (time.monotonic() - began)
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
            futures: list[Future[Sent]] = []
            for number in range(count):
                due = start + number / per_second
                time.sleep(max(0.0, due - time.perf_counter()))
                futures.append(pool.submit(self._post, number, due))
            sent = tuple(future.result() for future in futures)
        return Timing(f"{POST}, {per_second:g} a second", sent)

    def cpu_of_post(self, count: int) -> float:
        """Milliseconds of CPU that the API needs to create one job."""
        idle = self._cpu_rate_idle()
        self._post(-1, time.perf_counter())
        before, began = cpu_s(self._apis), time.monotonic()
        for number in range(count):
            self._post(number, time.perf_counter())
        own = cpu_s(self._apis) - before - idle * (time.monotonic() - began)
        return own / count * 1000

    def _post(self, number: int, due: float) -> Sent:
        headers = {"Idempotency-Key": f"load-{number}-{due}"}
        body = {**BODY, "seed": number + 1}
        response = self._client().post("/v1/jobs", json=body, headers=headers)
        return Sent(due, time.perf_counter(), len(response.content), response.status_code == 202)

    def _client(self) -> httpx.Client:
        return self._clients[next(self._turns) % len(self._clients)]

    def _cpu_rate_idle(self) -> float:
        """CPU seconds a second of the API without our requests: the median of five looks."""
        return statistics.median(cpu_share(self._apis, IDLE_LOOK_S) for _ in range(5))
