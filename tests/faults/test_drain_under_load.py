"""Worker and API are told to stop while jobs come in and run: nothing is lost or counted."""

import signal
import threading
from contextlib import suppress

import pytest
import sqlalchemy as sa

from app.db.tables import JobAttempt, Worker
from debias_client import ClientError
from tests.faults.rig import create, outcomes, rows_of, uuid_of, wait_for_end, wait_until
from tests.service import Service, wait_for

# The worker may take its drain timeout (20 s here), the API 30 s; machines are slow.
WORKER_STOP_S = 40
API_STOP_S = 45


class Load:
    """Keeps creating jobs until told to stop; remembers those that were accepted."""

    def __init__(self, service: Service) -> None:
        self.accepted: list[str] = []
        self._service = service
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(0.3):
            with suppress(ClientError):
                self.accepted.append(create(self._service, steps=10, step_s=0.02))


def ready_workers(service: Service) -> int:
    with rows_of(service) as database, database.read() as session:
        ready = sa.select(sa.func.count()).select_from(Worker).where(Worker.state == "ready")
        return session.execute(ready).scalar_one()


@pytest.mark.slow
def test_nothing_is_lost_when_worker_and_api_stop_under_load(separate: Service) -> None:
    service = separate
    service.start_role("second")
    # One that is still starting has nothing to give back, and ends by the signal itself.
    wait_for(lambda: ready_workers(service) == 2, timeout_s=60, what="two workers")
    with Load(service) as load:
        first = create(service, steps=2000, step_s=0.02)
        wait_until(service, first, status="running", phase="evaluating_before")
        for role, limit_s in (("worker", WORKER_STOP_S), ("second", WORKER_STOP_S)):
            service.processes[role].send_signal(signal.SIGTERM)
            assert service.processes[role].wait(limit_s) == 0
            service.start_role(role)
        service.processes["api"].send_signal(signal.SIGTERM)
        assert service.processes["api"].wait(API_STOP_S) == 0
        service.start_role("api")
        service.wait_until_ready()
    with service.client() as client:
        client.jobs.cancel(first)

    assert len(load.accepted) >= 2
    for job_id in load.accepted:
        job = wait_for_end(service, job_id)
        assert job["status"] == "succeeded", job["error"]
        assert set(outcomes(service, job_id)) <= {"drained", "succeeded"}
    assert wait_for_end(service, first)["status"] == "cancelled"
    assert set(outcomes(service, first)) <= {"drained", "cancelled"}
    with rows_of(service) as database, database.read() as session:
        jobs = [uuid_of(job_id) for job_id in (first, *load.accepted)]
        open_attempts = sa.select(JobAttempt).where(
            JobAttempt.job_id.in_(jobs), JobAttempt.ended_at.is_(None)
        )
        assert session.execute(open_attempts).all() == []
