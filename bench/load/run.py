"""One load run: fill, measure at rest, listen, measure under load, post, drain."""

import os
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.db.session import Database
from bench.deployments import add_tenants, api_alone, settings_of, urls_of
from bench.load.backlog import QueuedJob, fill
from bench.load.listeners import Ear, Heard, Listener, listening
from bench.load.metronome import Metronome, Pace, beating
from bench.load.probes import DatabaseProbe, cpu_share, rate_of
from bench.load.requests import POST, Reading, Requester, Timing
from bench.load.workers import Crew, working
from bench.machine import Machine, this_machine
from debias_client import Client
from tests.service import Service, wait_for

PROJECTS = 20
# One for each core on PostgreSQL, as replicas behind a balancer; on SQLite there is only one.
APIS = {"postgres": 2, "sqlite": 1}
MIB = 1024**2
SLOTS = 16
POSTS_PER_S = 20.0
# Events for the streams while the reads are measured: the jobs that workers finish a second.
CALM_RATE, FULL_RATE = 5.0, 1000.0
LISTEN_TIMEOUT_S = 120.0
WARM_UP_ROUNDS, WARM_UP_POST_S = 5, 3.0
DEEP_PAGES = 40
GOAL_P99_MS = 100.0
# What the API may gain between the start of the streams and the end of the drain.
GROWTH_SHARE, GROWTH_MIB = 0.1, 8.0


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything a run has."""

    jobs: int = 10_000
    streams: int = 200
    waits: int = 40
    rounds: int = 200
    cpu_rounds: int = 40
    post_s: float = 30.0
    drain_s: float = 30.0


QUICK = Size(jobs=2_000, streams=60, waits=20, rounds=30, cpu_rounds=10, post_s=5.0, drain_s=8.0)


@dataclass(frozen=True, slots=True)
class Moment:
    """All processes of the API at one moment; SQLite counts no transactions."""

    rss_mib: float
    connections: int
    transactions_per_s: float | None
    api_cores: float
    load_1m: float


@dataclass(frozen=True, slots=True)
class Rest:
    """With the backlog and nobody else: latency, and CPU time of the API for each request."""

    moment: Moment
    cpu_ms: dict[str, float]
    reads: tuple[Timing, ...]
    post: Timing


@dataclass(frozen=True, slots=True)
class Load:
    """With streams, waiting requests and workers."""

    moment: Moment
    reads: tuple[Timing, ...]
    post: Timing


@dataclass(frozen=True, slots=True)
class LoadRun:
    """What one run found."""

    database: str
    command: str
    machine: Machine
    size: Size
    rest: Rest
    load: Load
    end: Moment
    drained_per_s: float
    heard: Heard
    pace: Pace

    @property
    def missed(self) -> list[str]:
        """Name the goals that were missed, but for the time in which the machine was slow."""
        timings = (*self.load.reads, self.load.post, self.rest.post)
        at_rest = {self.rest.post: " with the backlog only"}
        seen = {timing: timing.percentile_ms(0.99, self.pace) for timing in timings}
        slow = [
            f"p99 of {timing.name} is {p99_ms:.0f} ms{at_rest.get(timing, '')}"
            for timing, p99_ms in seen.items()
            if p99_ms >= GOAL_P99_MS
        ]
        failed = [f"{timing.name} failed" for timing in timings if timing.failures]
        before, after = self.load.moment.rss_mib, self.end.rss_mib
        grown = after > before * (1 + GROWTH_SHARE) + GROWTH_MIB
        memory = [f"the API grew from {before:.0f} to {after:.0f} MiB"] if grown else []
        broken = [f"{self.heard.failures} streams broke"] if self.heard.failures else []
        return [*slow, *failed, *memory, *broken]


def run_load(kind: str, folder: Path, size: Size, command: str) -> LoadRun:
    """Start an API with its database and Redis, and measure it."""
    machine = this_machine()
    with beating() as metronome, api_alone(kind, folder, apis=APIS[kind]) as service:
        database = Database(settings_of(service).resolved_database_url)
        try:
            return _Load(service, database, size).run(kind, command, machine, metronome)
        finally:
            database.dispose()


class _Load:
    def __init__(self, service: Service, database: Database, size: Size) -> None:
        self._service = service
        self._database = database
        self._size = size
        self._urls = urls_of(service)
        self._apis = [service.process_of(role) for role in service.processes]
        self._probe = DatabaseProbe(service, self._apis)
        names = [f"load-{number}" for number in range(PROJECTS)]
        self._tenants = add_tenants(service, names, max_running=SLOTS)
        self._requester = Requester(self._urls, self._tenants[0], self._apis)

    def run(self, kind: str, command: str, machine: Machine, metronome: Metronome) -> LoadRun:
        """Fill the queue; measure at rest, under load, while posting, and while it drains."""
        tenants, size = self._tenants, self._size
        with Client(self._service.url, tenants[0].key) as client:
            jobs = fill(self._database, client, tenants, size.jobs)
        kinds = self._readings(jobs)
        rest = self._rest(kinds)
        settings = settings_of(self._service)
        urls = settings.resolved_database_url, str(settings.broker_url)
        with working(*urls, slots=SLOTS) as crew:
            crew.rate.value = CALM_RATE
            with listening(self._urls, _listeners(jobs, size)) as ear:
                self._wait_for_streams(ear)
                load = self._load(kinds)
                drained = self._drain(crew)
                heard = ear.heard()
        return LoadRun(
            database=kind,
            command=command,
            machine=machine,
            size=size,
            rest=rest,
            load=load,
            end=self._moment(),
            drained_per_s=drained,
            heard=heard,
            pace=metronome.pace(),
        )

    def _rest(self, kinds: Sequence[Reading]) -> Rest:
        self._warm_up(kinds)
        return Rest(
            moment=self._moment(),
            cpu_ms=self._requester.cpu_of(kinds, self._size.cpu_rounds)
            | {POST: self._requester.cpu_of_post(self._size.cpu_rounds)},
            reads=tuple(self._requester.read_in_turn(kinds, self._size.rounds)),
            post=self._requester.post_at_rate(POSTS_PER_S, self._size.post_s),
        )

    def _load(self, kinds: Sequence[Reading]) -> Load:
        self._warm_up(kinds)
        return Load(
            moment=self._moment(),
            reads=tuple(self._requester.read_in_turn(kinds, self._size.rounds)),
            post=self._requester.post_at_rate(POSTS_PER_S, self._size.post_s),
        )

    def _warm_up(self, kinds: Sequence[Reading]) -> None:
        """Fill the pools of threads and connections once: what is gained after that is growth."""
        self._requester.read_in_turn(kinds, WARM_UP_ROUNDS)
        self._requester.post_at_rate(POSTS_PER_S, WARM_UP_POST_S)

    def _moment(self) -> Moment:
        return Moment(
            rss_mib=sum(api.memory_info().rss for api in self._apis) / MIB,
            connections=self._probe.connections(),
            transactions_per_s=self._probe.transactions_a_second(),
            api_cores=cpu_share(self._apis),
            load_1m=os.getloadavg()[0],
        )

    def _drain(self, crew: Crew) -> float:
        crew.rate.value = FULL_RATE
        return rate_of(lambda: crew.ended.value, self._size.drain_s)

    def _wait_for_streams(self, ear: Ear) -> None:
        wait_for(
            lambda: ear.heard().open_streams >= self._size.streams,
            timeout_s=LISTEN_TIMEOUT_S,
            what="all streams",
        )

    def _readings(self, jobs: Sequence[QueuedJob]) -> list[Reading]:
        rng = random.Random(0)
        own = [job.id for job in jobs if job.tenant == self._tenants[0]]
        deep = self._deep_cursor()
        return [
            Reading("GET /v1/jobs", lambda: "/v1/jobs"),
            Reading("GET /v1/jobs?limit=100", lambda: "/v1/jobs?limit=100"),
            Reading("GET /v1/jobs, 40 pages deep", lambda: f"/v1/jobs?cursor={deep}"),
            Reading("GET /v1/jobs?status=queued", lambda: "/v1/jobs?status=queued"),
            Reading("GET /v1/jobs?status=failed, none", lambda: "/v1/jobs?status=failed"),
            Reading("GET /v1/jobs?label=team:nlp", lambda: "/v1/jobs?label=team:nlp"),
            Reading("GET /v1/jobs?q=none-like-it", lambda: "/v1/jobs?q=none-like-it"),
            Reading("GET /v1/jobs/{id}", lambda: f"/v1/jobs/{rng.choice(own)}"),
            Reading("GET /v1/jobs/{id}/events", lambda: f"/v1/jobs/{rng.choice(own)}/events"),
            Reading("GET /v1/jobs/summary", lambda: "/v1/jobs/summary"),
            Reading("GET /readyz", lambda: "/readyz"),
            Reading("GET /metrics", lambda: "/metrics"),
        ]

    def _deep_cursor(self) -> str:
        cursor = ""
        for _ in range(DEEP_PAGES):
            query = f"&cursor={cursor}" if cursor else ""
            page = self._requester.get(f"/v1/jobs?limit=20{query}").json()
            cursor = page["next_cursor"] or cursor
        return cursor


def _listeners(jobs: Sequence[QueuedJob], size: Size) -> list[Listener]:
    """Spread streams and waits over the projects; each client has jobs of its own."""
    by_tenant: dict[str, list[str]] = defaultdict(list)
    for job in jobs:
        by_tenant[job.tenant.key].append(job.id)
    counts = [size.streams // PROJECTS, size.waits // PROJECTS]
    found = []
    for key, ids in by_tenant.items():
        clients = sum(counts)
        for number in range(clients):
            share = tuple(ids[number::clients])
            found.append(Listener(key, share, streams=number < counts[0]))
    return found
