"""What goes wrong in a deployment, on demand, and what must hold afterwards."""

import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import httpx
import psutil
import psycopg
import redis
import sqlalchemy as sa
from psycopg import sql
from sqlalchemy.orm import Session

from app.db.tables import Job, JobAttempt, OutboxMessage, Worker
from app.domain.states import LEASED
from tests.faults.consistency import violations
from tests.faults.rig import LEASE_TTL_S, rows_of, still_alive, wait_until_gone
from tests.service import Service, wait_for

REACTION_TIMEOUT_S = 60.0
LOCK_TIMEOUT_S = 0.5


@dataclass
class Disorder:
    """Disturbs one deployment; every method returns once the deployment can be disturbed again."""

    service: Service
    # Workers whose parent is never killed; their children are.
    spared: frozenset[str] = frozenset()

    def kill_child(self) -> None:
        for victim in self._children():
            with suppress(psutil.NoSuchProcess):
                victim.kill()

    def kill_worker(self) -> None:
        """Kill one worker's parent; it is started again."""
        victim = self._worker(spared=self.spared)
        victim.kill()
        role = self._role_of(victim.pid)
        if role is not None:
            self.service.processes[role].wait()
            self.service.start_role(role)

    def stop_worker(self) -> None:
        """Ask one worker to drain, as a deployment of a new release does."""
        victim = self._worker()
        victim.terminate()
        role = self._role_of(victim.pid)
        if role is not None:
            self.service.processes[role].wait(REACTION_TIMEOUT_S)
            self.service.start_role(role)

    def freeze_worker(self) -> None:
        """Suspend a worker with its child until its job was given to another.

        A child that is suspended inside a transaction holds SQLite's only write lock: then nobody
        can take the job, and all wait until it goes on.
        """
        parent = self._worker()
        until = time.monotonic() + 6 * LEASE_TTL_S
        with frozen([parent, *parent.children(recursive=True)]):
            wait_for(
                lambda: not self._held_by(parent.pid) or time.monotonic() > until,
                timeout_s=REACTION_TIMEOUT_S,
                what="the reaper to notice a frozen worker",
            )

    def kill_api(self) -> None:
        """Kill the API, and with it all of an embedded service."""
        role = "serve" if "serve" in self.service.processes else "api"
        victim = self.service.process_of(role)
        family = [victim, *(victim.children(recursive=True) if role == "serve" else ())]
        victim.kill()
        self.service.processes[role].wait()
        wait_until_gone(family, timeout_s=REACTION_TIMEOUT_S)
        self.service.start_role(role)
        self.service.wait_until_ready()

    def forget_messages(self) -> None:
        client = redis.Redis.from_url(self._broker_url())
        client.flushall()
        client.close()

    def refuse_database(self) -> None:
        """End all connections to the database and refuse new ones, until a worker has noticed."""
        dsn = self.service.environment["DEBIAS_DATABASE_URL"].replace("+psycopg", "")
        name = dsn.rpartition("/")[2]
        with psycopg.connect(dsn.replace(f"/{name}", "/postgres"), autocommit=True) as connection:
            allow = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
            connection.execute(allow.format(sql.Identifier(name), sql.Literal(False)))
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
            )
            wait_for(
                self._is_degraded, timeout_s=REACTION_TIMEOUT_S, what="the API to miss its database"
            )
            connection.execute(allow.format(sql.Identifier(name), sql.Literal(True)))

    def _is_degraded(self) -> bool:
        return not httpx.get(f"{self.service.url}/readyz", timeout=10).is_success

    def _broker_url(self) -> str:
        given = self.service.environment.get("DEBIAS_BROKER_URL")
        return given or f"unix://{self.service.home}/redis.sock"

    def _worker(self, *, spared: frozenset[str] = frozenset()) -> psutil.Process:
        """Choose a worker that runs a job, waiting for one."""

        def probe() -> psutil.Process | None:
            with rows_of(self.service) as database, database.read() as session:
                pids = session.execute(
                    sa.select(Worker.pid)
                    .join(Job, Job.worker_id == Worker.id)
                    .where(Job.status.in_(LEASED))
                ).scalars()
                known = {process.pid: process for process in self._workers(spared)}
                return next((known[pid] for pid in pids if pid in known), None)

        found = wait_for(probe, timeout_s=REACTION_TIMEOUT_S, what="a worker with a job")
        assert found is not None
        return found

    def _workers(self, spared: frozenset[str]) -> list[psutil.Process]:
        serve = self.service.processes.get("serve")
        if serve is not None:
            children = psutil.Process(serve.pid).children()
            return [child for child in still_alive(children) if "worker" in child.cmdline()]
        processes = self.service.processes
        names = [name for name in processes if name.startswith("worker") and name not in spared]
        return [psutil.Process(processes[name].pid) for name in names]

    def _children(self) -> list[psutil.Process]:
        return self._worker().children()

    def _role_of(self, pid: int) -> str | None:
        roles = self.service.processes.items()
        return next((role for role, process in roles if process.pid == pid), None)

    def _held_by(self, pid: int) -> bool:
        with rows_of(self.service) as database, database.read() as session:
            held = (
                sa.select(Job.id)
                .join(Worker, Job.worker_id == Worker.id)
                .where(Job.status.in_(LEASED), Worker.pid == pid)
            )
            return session.execute(held).first() is not None


@contextmanager
def frozen(processes: Sequence[psutil.Process]) -> Iterator[None]:
    """Suspend the processes; let go of those that still live, whatever happens."""
    try:
        for process in processes:
            process.send_signal(signal.SIGSTOP)
        yield
    finally:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)


@contextmanager
def frozen_between_writes(service: Service, processes: Sequence[psutil.Process]) -> Iterator[None]:
    """Suspend the processes at a moment at which none of them holds SQLite's only write lock.

    Otherwise nobody could take over their job before they go on.
    """
    is_frozen_well = False
    while not is_frozen_well:
        with frozen(processes):
            is_frozen_well = _takes_writes(service)
            if is_frozen_well:
                yield


def _takes_writes(service: Service) -> bool:
    with rows_of(service, answer_timeout_s=LOCK_TIMEOUT_S) as database:
        try:
            with database.write():
                return True
        except sa.exc.OperationalError:
            return False


def wait_for_all(service: Service, count: int, *, timeout_s: float) -> None:
    """Wait until that many jobs have ended."""

    def probe() -> bool:
        with rows_of(service) as database, database.read() as session:
            ended = sa.select(sa.func.count()).where(Job.finished_at.is_not(None))
            return session.execute(ended).scalar_one() >= count

    wait_for(probe, timeout_s=timeout_s, what=f"the end of {count} jobs")


def assert_each_done_once(service: Service, count: int) -> None:
    """Check every row of all jobs: none lost, no effect doubled, nothing left over."""
    with rows_of(service) as database, database.read() as session:
        jobs = session.execute(sa.select(Job)).scalars().all()
        assert Counter(job.status for job in jobs) == {"succeeded": count}
        for job in jobs:
            assert (job.dispatched_at, job.lease_expires_at) == (None, None)
            assert list(violations(session, job)) == [], job.id
            assert _outcomes_of_tries(session, job) <= {"lost", "drained", "released"}
        unsent = session.execute(
            sa.select(OutboxMessage.id).where(OutboxMessage.last_error.is_not(None))
        )
        assert unsent.all() == []


def _outcomes_of_tries(session: Session, job: Job) -> set[str | None]:
    """How the attempts before the last one ended."""
    outcomes = session.execute(
        sa.select(JobAttempt.outcome).where(
            JobAttempt.job_id == job.id, JobAttempt.number < job.attempt
        )
    )
    return set(outcomes.scalars())
