import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.db.repositories.execution import lock_fenced, read_pulse
from app.db.session import Database
from app.db.tables import Job, JobAttempt
from app.db.transition import transition
from app.domain.states import Actor, JobStatus
from tests.execution import (
    add_worker,
    claim,
    claim_next,
    dispatch_one,
    queue_job,
    read_attempts,
    read_events,
    read_job,
)
from tests.fixtures.database import make_project

RACERS = 6
JOBS = 60

RACER = """
import sys
from uuid import UUID
from app.db.repositories.execution import WorkerIdentity, claim_job
from app.db.session import Database

database = Database(sys.argv[1])
worker = WorkerIdentity(UUID(sys.argv[2]), "racer", 1)
sys.stdin.readline()  # all start together
for line in open(sys.argv[3]):
    with database.write() as session:
        claimed = claim_job(
            session, UUID(line.strip()), 1, worker=worker,
            now=database.now(session), lease_ttl_s=60,
        )
    if claimed is not None:
        print(claimed.job_id, claimed.fence, flush=True)
"""


def test_a_claim_raises_fence_and_attempt_and_takes_a_lease(database: Database) -> None:
    worker = add_worker(database)
    job_id = queue_job(database, make_project(database))

    claimed = claim_next(database, worker)

    job = read_job(database, job_id)
    assert (job.status, job.fence, job.attempt) == ("running", 1, 1)
    assert job.lease_expires_at is not None
    assert job.dispatched_at is None
    assert [(a.number, a.fence, a.outcome) for a in read_attempts(database, job_id)] == [
        (1, 1, None)
    ]
    assert claimed.fence == 1
    assert read_events(database, job_id)[-1].type == "job.claimed"


def test_a_message_that_was_never_dispatched_misses(database: Database) -> None:
    worker = add_worker(database)
    job_id = queue_job(database, make_project(database))

    assert claim(database, job_id, 0, worker) is None


@pytest.mark.parametrize("dispatch", [0, 2])
def test_a_message_of_another_dispatch_misses(database: Database, dispatch: int) -> None:
    worker = add_worker(database)
    job_id = queue_job(database, make_project(database))
    dispatch_one(database)

    assert claim(database, job_id, dispatch, worker) is None


def test_a_second_copy_of_a_message_misses(database: Database) -> None:
    worker = add_worker(database)
    job_id = queue_job(database, make_project(database))
    claim_next(database, worker)

    assert claim(database, job_id, 1, worker) is None


def test_the_message_of_a_cancelled_job_misses(database: Database) -> None:
    worker = add_worker(database)
    job_id = queue_job(database, make_project(database))
    dispatch_one(database)
    with database.write() as session:
        transition(
            session,
            job_id,
            JobStatus.QUEUED,
            JobStatus.CANCELLED,
            Actor.API,
            now=database.now(session),
        )

    assert claim(database, job_id, 1, worker) is None


def test_a_stale_fence_locks_nothing_and_learns_nothing(database: Database) -> None:
    worker = add_worker(database)
    job_id = queue_job(database, make_project(database))
    old = claim_next(database, worker)
    with database.write() as session:
        session.execute(sa.update(Job).where(Job.id == job_id).values(fence=Job.fence + 1))

    with database.write() as session:
        assert lock_fenced(session, job_id, old.fence) is None
        assert read_pulse(session, job_id, old.fence) is None


def test_competing_workers_claim_each_job_exactly_once(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    project = make_project(database, max_running=JOBS)
    for _ in range(JOBS):
        queue_job(database, project)
    jobs = [dispatch_one(database) for _ in range(JOBS)]
    listing = tmp_path / "jobs"
    listing.write_text("".join(f"{job[0]}\n" for job in jobs if job is not None))

    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, database_url, str(add_worker(database).id), listing],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(RACERS)
    ]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    output = [racer.communicate(timeout=60)[0] for racer in racers]

    assert [racer.returncode for racer in racers] == [0] * RACERS
    claims = Counter(line for text in output for line in text.splitlines())
    assert len(claims) == JOBS
    assert set(claims.values()) == {1}
    with database.read() as session:
        attempts = session.execute(sa.select(sa.func.count()).select_from(JobAttempt)).scalar_one()
    assert attempts == JOBS
