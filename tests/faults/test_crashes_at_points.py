"""A process is killed at a named point: every job still ends once, with the same files."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app.db.tables import JobAttempt, JobCheckpoint
from app.domain.states import Phase
from tests.faults.rig import (
    checkpoint_digest,
    create,
    embedded_service,
    get,
    rows_of,
    running,
    snapshot,
    uuid_of,
    wait_for_end,
    wait_until,
)
from tests.service import Service, wait_for

# In the order in which an undisturbed job passes them.
CHILD_POINTS = [
    "claiming", "claimed", *Phase, "point_stored", "point_saved", "uploaded", "committing",
    "committed",
]  # fmt: skip
API_POINTS = ["relaying", "dispatched", "published"]
STOP_POINTS = ["ending", "ended"]
DEFAULT = {"committing"}


def slow_but(points: list[Any], kept: set[str]) -> list[Any]:
    return [
        point if point in kept else pytest.param(point, marks=pytest.mark.slow) for point in points
    ]


@pytest.fixture(scope="module")
def undisturbed_digest(tmp_path_factory: pytest.TempPathFactory) -> str:
    with running(embedded_service(tmp_path_factory.mktemp("undisturbed"))) as service:
        job_id = create(service)
        assert wait_for_end(service, job_id)["status"] == "succeeded"
        return checkpoint_digest(service, job_id)


def assert_done_once(service: Service, job: dict[str, Any], digest: str) -> None:
    assert job["status"] == "succeeded", job["error"]
    rows = snapshot(service, job["id"])
    types = [type_ for _, type_ in rows["events"]]
    assert (types.count("job.succeeded"), types.count("artifact.created")) == (1, 1)
    assert [seq for seq, _ in rows["events"]] == list(range(1, len(rows["events"]) + 1))
    assert checkpoint_digest(service, job["id"]) == digest
    assert_nothing_is_left_open(service, job["id"])


def assert_nothing_is_left_open(service: Service, job_id: str) -> None:
    key = uuid_of(job_id)
    with rows_of(service) as database, database.read() as session:
        open_attempts = session.execute(
            sa.select(JobAttempt).where(JobAttempt.job_id == key, JobAttempt.ended_at.is_(None))
        ).all()
        points = session.execute(
            sa.select(JobCheckpoint).where(
                JobCheckpoint.job_id == key, JobCheckpoint.deleted_at.is_(None)
            )
        ).all()
    assert (open_attempts, points) == ([], [])


@pytest.mark.parametrize("point", slow_but(CHILD_POINTS, DEFAULT))
def test_a_child_killed_at_a_point(point: str, undisturbed_digest: str, tmp_path: Path) -> None:
    with running(embedded_service(tmp_path, DEBIAS_FAULT=f"{point}:1")) as service:
        job = wait_for_end(service, create(service))

        assert_done_once(service, job, undisturbed_digest)
        assert job["attempt"] == (1 if point in ("claiming", "committed") else 2)


@pytest.mark.slow
@pytest.mark.parametrize("point", API_POINTS)
def test_a_service_killed_at_a_point(point: str, undisturbed_digest: str, tmp_path: Path) -> None:
    service = embedded_service(tmp_path, DEBIAS_FAULT=point)
    with running(service):
        job_id = create(service)
        assert service.processes["serve"].wait(60) == -signal.SIGKILL
        del service.environment["DEBIAS_FAULT"]
        service.start_role("serve")
        service.wait_until_ready()

        assert_done_once(service, wait_for_end(service, job_id), undisturbed_digest)


@pytest.fixture
def paused_by_crash(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    with running(embedded_service(tmp_path, DEBIAS_FAULT=f"{request.param}:1")) as service:
        yield service


@pytest.mark.slow
@pytest.mark.parametrize("paused_by_crash", STOP_POINTS, indirect=True)
def test_a_child_killed_while_it_pauses(
    paused_by_crash: Service, undisturbed_digest: str, tmp_path: Path
) -> None:
    service, gate = paused_by_crash, tmp_path / "gate"
    job_id = create(service, wait_for=str(gate))
    wait_until(service, job_id, status="running", phase="debiasing")

    with service.client() as client:
        client.jobs.pause(job_id)
    job = wait_until(service, job_id, status="paused")
    assert (job["worker"] is None, job["stop_requested"]) == (False, None)
    gate.touch()
    with service.client() as client:
        client.jobs.resume(job_id)

    assert_done_once(service, wait_for_end(service, job_id), undisturbed_digest)


@pytest.mark.slow
@pytest.mark.parametrize("point", STOP_POINTS)
def test_a_child_killed_while_its_worker_drains(
    point: str, undisturbed_digest: str, tmp_path: Path
) -> None:
    with running(embedded_service(tmp_path, DEBIAS_FAULT=f"{point}:1")) as service:
        gate = tmp_path / "gate"
        job_id = create(service, wait_for=str(gate))
        wait_until(service, job_id, status="running", phase="debiasing")

        service.process_of("worker").send_signal(signal.SIGTERM)
        wait_for(lambda: get(service, job_id)["attempt"] == 2, timeout_s=90, what="another attempt")
        gate.touch()

        assert_done_once(service, wait_for_end(service, job_id), undisturbed_digest)
