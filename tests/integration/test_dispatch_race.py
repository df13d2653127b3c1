"""Several dispatchers and workers at once: each job is claimed once, and no cap is exceeded."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.db.session import Database
from app.db.tables import Job, JobAttempt
from tests.execution import add_worker, queue_job
from tests.fixtures.database import make_project

CAP = 3
# Each process dispatches, claims what it was sent, sometimes twice, looks at the cap, and ends it.
RACER = """
import sys
from uuid import UUID
import sqlalchemy as sa
from app.db.repositories.execution import WorkerIdentity, claim_job, lock_fenced
from app.db.session import Database
from app.db.tables import Job
from app.dispatch.dispatcher import Dispatcher
from app.dispatch.endings import Ending, EndingWriter
from app.domain.errors import JobErrorCode, JobFailure
from app.domain.states import LEASED, Actor, AttemptOutcome
from tests.execution import TIMING, RecordingBroker

database = Database(sys.argv[1])
worker = WorkerIdentity(UUID(sys.argv[2]), "host", 1)
cap = int(sys.argv[3])
broker = RecordingBroker()
dispatcher = Dispatcher(database, broker, timing=TIMING, device_classes=("cpu",))
endings = EndingWriter(TIMING)
gone = Ending(AttemptOutcome.FAILED, JobFailure(JobErrorCode.INTERNAL, "m", "h"))
occupying = sa.or_(Job.status.in_(LEASED), Job.dispatched_at.is_not(None))

def most_of_one_project():
    counts = sa.select(sa.func.count()).where(occupying).group_by(Job.project_id)
    with database.read() as session:
        return max(session.execute(counts).scalars(), default=0)

def work(job_id, dispatch):
    with database.write() as session:
        now = database.now(session)
        held = claim_job(session, job_id, dispatch, worker=worker, now=now, lease_ttl_s=60)
    if held is None:
        return
    print("claimed", job_id, flush=True)
    if most_of_one_project() > cap:
        print("exceeded", job_id, flush=True)
    with database.write() as session:
        job = lock_fenced(session, job_id, held.fence)
        endings.end(session, job, gone, by=Actor.WORKER, now=database.now(session))

def left():
    with database.read() as session:
        return session.execute(sa.select(sa.exists().where(Job.finished_at.is_(None)))).scalar()

sys.stdin.readline()
while left():
    dispatcher.run_once()
    while broker.messages:
        job_id, dispatch, _ = broker.messages.pop()
        work(job_id, dispatch)
        work(job_id, dispatch)
"""


@pytest.mark.parametrize(
    ("racers", "jobs"), [(3, 30), pytest.param(8, 500, marks=pytest.mark.slow)]
)
def test_no_job_is_claimed_twice_and_no_project_gets_more_than_its_cap(
    database: Database, database_url: str, racers: int, jobs: int
) -> None:
    projects = [make_project(database, max_running=CAP) for _ in range(2)]
    for number in range(jobs):
        queue_job(database, projects[number % 2])
    workers = [add_worker(database) for _ in range(racers)]
    racing = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, database_url, str(worker.id), str(CAP)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        for worker in workers
    ]
    for racer in racing:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    lines = [line for racer in racing for line in racer.communicate(timeout=500)[0].splitlines()]

    assert [racer.returncode for racer in racing] == [0] * racers
    assert not [line for line in lines if line.startswith("exceeded")]
    claims = Counter(line for line in lines if line.startswith("claimed"))
    assert (len(claims), set(claims.values())) == (jobs, {1})
    with database.read() as session:
        attempts = session.execute(sa.select(sa.func.count()).select_from(JobAttempt)).scalar_one()
        assert attempts == jobs
        left = sa.select(sa.func.count()).where(Job.status != "failed")
        assert session.execute(left).scalar_one() == 0
