"""One soak from the start of the servers to the verdict."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from app.db.session import Database
from app.db.tables import Job
from app.services.connections import store_of
from app.settings import Settings
from bench.deployments import Shape, add_tenants, deployment, settings_of, urls_of
from bench.machine import Machine, this_machine
from bench.soak.chaos import Chaos
from bench.soak.clients import Clients
from bench.soak.collecting import collect_garbage
from bench.soak.leftovers import count_rows, find_orphans, left_in_scratch
from bench.soak.plan import PlannedJob, plan_jobs
from bench.soak.samples import Sampler
from bench.soak.summary import Left, Run
from bench.soak.verdict import judge
from tests.service import Service
from workers.runtime.scratch import remove_abandoned

TENANTS = 4
# Waiting jobs that the clients keep up: enough for the shares of projects to matter.
BACKLOG = 60
SHAPE = Shape(apis=2, workers=3)
# A child imports the engine and the store's client: 0.6 CPU seconds that not every job must pay.
JOBS_PER_CHILD = 25
END_POLL_S = 0.5
# The last jobs would meet every kill, until they have no attempt left.
LEFT_ALONE = 5
# Without any progress for so long, the queue is stuck.
STALL_S = 240.0


@dataclass
class Soak:
    """What is to be run."""

    folder: Path
    deployment: str
    jobs: int
    seed: int
    kill_every_s: float

    def run(self) -> Run:
        """Run it, and judge it once nothing of it runs any more."""
        planned = plan_jobs(self.jobs, tenants=TENANTS, seed=self.seed)
        machine = this_machine()
        settings = {"DEBIAS_JOBS_PER_CHILD": str(JOBS_PER_CHILD)}
        with deployment(self.deployment, self.folder, shape=SHAPE, **settings) as service:
            database = Database(settings_of(service).resolved_database_url)
            try:
                return self._run(service, database, planned, machine)
            finally:
                database.dispose()

    def _run(
        self,
        service: Service,
        database: Database,
        planned: Sequence[PlannedJob],
        machine: Machine,
    ) -> Run:
        started = time.monotonic()
        names = [f"tenant-{number}" for number in range(TENANTS)]
        progress = Progress(database)
        tenants = add_tenants(service, names)
        clients = Clients(urls_of(service), tenants, progress.ended, BACKLOG)
        chaos = Chaos(service, self.kill_every_s, self.seed)
        sampler = Sampler(service)
        sampler.start()
        chaos.start()
        try:
            clients.send(planned)
            stuck = progress.wait_for(len(planned) - LEFT_ALONE)
            chaos.stop()
            stuck += progress.wait_for(len(planned), meanwhile=chaos.supervise)
        finally:
            chaos.stop()
            sampler.stop()
        duration_s = time.monotonic() - started
        service.stop()
        settings = settings_of(service)
        return Run(
            deployment=self.deployment,
            command=self._command(),
            machine=machine,
            jobs=len(planned),
            duration_s=duration_s,
            kill_every_s=self.kill_every_s,
            processes=_describe(service),
            kills=chaos.kills,
            ended_alone=chaos.ended_alone,
            requests=clients.counts,
            verdict=judge(database, planned, clients.accepted),
            growths=tuple(sampler.growths()),
            more_broken=stuck,
            left=_clean_up(database, settings),
        )

    def _command(self) -> str:
        return (
            f"python -m bench.soak --jobs {self.jobs} --deployment {self.deployment} "
            f"--seed {self.seed} --kill-every {self.kill_every_s:g}"
        )


@dataclass
class Progress:
    """How many jobs have ended, by their rows: it is asked for while APIs are dead."""

    database: Database
    _known: int = 0

    def ended(self) -> int:
        """Count ended jobs; the last count while the database does not answer."""
        with suppress(SQLAlchemyError), self.database.read() as session:
            statement = sa.select(sa.func.count()).where(Job.finished_at.is_not(None))
            self._known = session.execute(statement).scalar_one()
        return self._known

    def wait_for(
        self, count: int, *, meanwhile: Callable[[], None] = lambda: None
    ) -> tuple[str, ...]:
        """Wait until that many jobs have ended; say so when nothing happens for long."""
        since, last = time.monotonic(), self.ended()
        while (ended := self.ended()) < count:
            if ended != last:
                since, last = time.monotonic(), ended
            if time.monotonic() - since > STALL_S:
                return (f"nothing ended for {STALL_S:.0f} s: {count - ended} jobs are stuck",)
            meanwhile()
            time.sleep(END_POLL_S)
        return ()


def _clean_up(database: Database, settings: Settings) -> Left:
    """Collect garbage, and look at what is left."""
    store = store_of(settings)
    collected = collect_garbage(database, store)
    # Whatever was killed last may have nobody after it: this is what a new child begins with.
    abandoned = remove_abandoned(settings.resolved_scratch_dir)
    return Left(
        abandoned=tuple(abandoned),
        collected=collected,
        rows=count_rows(database),
        orphans=tuple(find_orphans(database, store)),
        scratch=tuple(left_in_scratch(settings.resolved_scratch_dir)),
    )


def _describe(service: Service) -> str:
    roles = " + ".join(service.roles)
    return f"Processes: {roles}; {JOBS_PER_CHILD} jobs a child, {TENANTS} projects"
