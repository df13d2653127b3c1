"""A process that stands in for many workers: it claims and ends jobs, with no engine between."""

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from queue import Empty
from uuid import UUID

from kombu import Connection

from app.db.repositories.execution import WorkerIdentity, claim_job
from app.db.session import Database
from app.db.tables import Worker
from app.db.transition import transition
from app.dispatch.broker import queue_of
from app.domain.clock import unix_ms
from app.domain.ids import new_id
from app.domain.states import Actor, JobStatus

DEVICE_CLASS = "cpu"
LEASE_S = 60.0
SEEN_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class Crew:
    """The stand-ins: how many jobs they have ended, and how many they may end a second."""

    ended: "Synchronized[int]"
    rate: "Synchronized[float]"


@contextmanager
def working(database_url: str, broker_url: str, *, slots: int) -> Iterator[Crew]:
    """Run `slots` stand-ins in a process of their own; at first they do nothing."""
    context = multiprocessing.get_context("spawn")
    crew = Crew(context.Value("l", 0), context.Value("d", 0.0))
    process = context.Process(
        target=_work, args=(database_url, broker_url, slots, crew.ended, crew.rate), daemon=True
    )
    process.start()
    try:
        yield crew
    finally:
        process.kill()
        process.join()


def _work(
    database_url: str,
    broker_url: str,
    slots: int,
    ended: "Synchronized[int]",
    rate: "Synchronized[float]",
) -> None:
    database = Database(database_url)
    while not rate.value:
        time.sleep(0.05)
    idle = [_register(database) for _ in range(slots)]
    seen_at = time.monotonic()
    with Connection(broker_url) as connection:
        queue = connection.SimpleQueue(queue_of(DEVICE_CLASS))
        while True:
            if time.monotonic() - seen_at > SEEN_EVERY_S:
                _report(database, idle)
                seen_at = time.monotonic()
            began = time.monotonic()
            try:
                message = queue.get(timeout=0.5)
            except Empty:
                continue
            message.ack()
            job_id, dispatch = message.payload[0]
            worker = idle.pop(0)
            if _do(database, UUID(job_id), int(dispatch), worker):
                ended.value += 1
            idle.append(worker)
            time.sleep(max(0.0, 1 / rate.value - (time.monotonic() - began)))


def _do(database: Database, job_id: UUID, dispatch: int, worker: WorkerIdentity) -> bool:
    """Claim a job in one transaction and end it in another, as an attempt does."""
    with database.write() as session:
        now = database.now(session)
        claim = claim_job(session, job_id, dispatch, worker=worker, now=now, lease_ttl_s=LEASE_S)
    if claim is None:
        return False
    with database.write() as session:
        now = database.now(session)
        transition(session, job_id, JobStatus.RUNNING, JobStatus.SUCCEEDED, Actor.WORKER, now=now)
        session.get_one(Worker, worker.id).current_job_id = None
    return True


def _register(database: Database) -> WorkerIdentity:
    with database.write() as session:
        now = database.now(session)
        identity = WorkerIdentity(new_id(unix_ms(now)), "bench", 1)
        session.add(
            Worker(
                id=identity.id,
                created_at=now,
                host=identity.host,
                boot_id="bench",
                pid=identity.pid,
                classes=[DEVICE_CLASS],
                device="cpu",
                versions={},
                state="ready",
                last_seen_at=now,
            )
        )
    return identity


def _report(database: Database, workers: list[WorkerIdentity]) -> None:
    with database.write() as session:
        now = database.now(session)
        for worker in workers:
            session.get_one(Worker, worker.id).last_seen_at = now
