"""What a job becomes when processes die under it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app.db.tables import Worker
from tests.faults.rig import (
    checkpoint_digest,
    create,
    embedded_service,
    family,
    outcomes,
    rows_of,
    running,
    snapshot,
    wait_for_end,
    wait_until,
    wait_until_gone,
)
from tests.servers import reserve_ports
from tests.service import Service, wait_for

# Named in the design: before and after the claim, each phase, around the last commit.
EARLY_POINTS = ["claiming", "claimed", "preparing", "evaluating_before", "debiasing"]
LATE_POINTS = ["evaluating_after", "packaging", "uploading"]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service whose worker and children may be killed; it mends itself."""
    with running(embedded_service(tmp_path_factory.mktemp("lost"))) as started:
        yield started


@pytest.fixture(scope="module")
def undisturbed_digest(service: Service) -> str:
    job_id = create(service)
    assert wait_for_end(service, job_id)["status"] == "succeeded"
    return checkpoint_digest(service, job_id)


def wait_in_the_middle(service: Service, job_id: str) -> None:
    wait_until(service, job_id, status="running", phase="debiasing")


def wait_until_drains(service: Service) -> None:
    def probe() -> bool:
        with rows_of(service) as database, database.read() as session:
            states = session.execute(sa.select(Worker.state)).scalars().all()
        return "draining" in states

    wait_for(probe, timeout_s=30, what="a draining worker")


def assert_done_once(service: Service, job: dict[str, Any], digest: str) -> None:
    assert job["status"] == "succeeded", job["error"]
    rows = snapshot(service, job["id"])
    assert [type_ for _, type_ in rows["events"]].count("job.succeeded") == 1
    assert [seq for seq, _ in rows["events"]] == list(range(1, len(rows["events"]) + 1))
    assert checkpoint_digest(service, job["id"]) == digest


def job_whose_process_was_killed(service: Service, role: str, gate: Path) -> dict[str, Any]:
    """Kill a process in mid-job, let the second attempt go on, and wait for the end."""
    job_id = create(service, wait_for=str(gate))
    wait_in_the_middle(service, job_id)
    service.process_of(role).kill()
    wait_until(service, job_id, attempt=2, phase="debiasing")
    gate.touch()
    return wait_for_end(service, job_id)


def test_a_killed_child_is_found_at_once_and_the_job_repeated(
    service: Service, undisturbed_digest: str, tmp_path: Path
) -> None:
    job = job_whose_process_was_killed(service, "child", tmp_path / "gate")

    assert_done_once(service, job, undisturbed_digest)
    assert outcomes(service, job["id"]) == ["lost", "succeeded"]


def test_a_killed_worker_is_started_again_and_the_job_repeated(
    service: Service, undisturbed_digest: str, tmp_path: Path
) -> None:
    job = job_whose_process_was_killed(service, "worker", tmp_path / "gate")

    assert_done_once(service, job, undisturbed_digest)


def test_a_worker_told_to_stop_gives_the_job_back_unharmed(
    service: Service, undisturbed_digest: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    job_id = create(service, wait_for=str(gate))
    wait_in_the_middle(service, job_id)

    service.process_of("worker").send_signal(signal.SIGTERM)
    wait_until(service, job_id, attempt=2, phase="debiasing")
    gate.touch()
    job = wait_for_end(service, job_id)

    assert_done_once(service, job, undisturbed_digest)
    assert outcomes(service, job_id) == ["drained", "succeeded"]


def test_a_worker_told_twice_to_stop_gives_back_even_a_job_that_hangs(service: Service) -> None:
    job_id = create(service, trouble="hang", trouble_times=1)
    wait_in_the_middle(service, job_id)
    worker = service.process_of("worker")

    worker.send_signal(signal.SIGTERM)
    wait_until_drains(service)
    worker.send_signal(signal.SIGTERM)
    job = wait_for_end(service, job_id)

    assert job["status"] == "succeeded"
    assert outcomes(service, job_id) == ["drained", "succeeded"]


@pytest.mark.parametrize(
    ("trouble", "signal_number", "exit_code"),
    [("segfault", signal.SIGSEGV, None), ("exit", None, 42)],
)
def test_a_job_that_always_ends_its_process_fails_and_says_how(
    service: Service, trouble: str, signal_number: int | None, exit_code: int | None
) -> None:
    job_id = create(service, trouble=trouble)

    job = wait_for_end(service, job_id)

    assert job["status"] == "failed"
    assert job["error"]["code"] == "worker_lost"
    assert job["error"]["signal"] == signal_number
    assert job["error"]["exit_code"] == exit_code
    assert outcomes(service, job_id) == ["lost"] * 3


def test_a_job_that_crashes_once_succeeds_the_second_time(
    service: Service, undisturbed_digest: str
) -> None:
    job_id = create(service, trouble="segfault", trouble_step=2, trouble_times=1)

    assert_done_once(service, wait_for_end(service, job_id), undisturbed_digest)
    assert outcomes(service, job_id) == ["lost", "succeeded"]


def test_a_cancel_reaches_a_running_engine(service: Service, tmp_path: Path) -> None:
    job_id = create(service, wait_for=str(tmp_path / "never"))
    wait_in_the_middle(service, job_id)

    with service.client() as client:
        client.jobs.cancel(job_id)
    job = wait_for_end(service, job_id)

    assert (job["status"], job["error"]) == ("cancelled", None)


def test_an_engine_that_ignores_a_cancel_is_ended_and_the_worker_goes_on(
    service: Service, undisturbed_digest: str
) -> None:
    stuck = create(service, trouble="hang")
    wait_in_the_middle(service, stuck)

    with service.client() as client:
        client.jobs.cancel(stuck)
    job = wait_for_end(service, stuck)
    following = wait_for_end(service, create(service))

    assert job["status"] == "cancelled"
    assert outcomes(service, stuck) == ["cancelled"]
    assert_done_once(service, following, undisturbed_digest)


def test_a_killed_broker_is_started_again_and_no_job_is_lost(
    service: Service, undisturbed_digest: str
) -> None:
    serve = service.process_of("serve")
    redis = [child for child in serve.children() if "redis-server" in child.name()]
    assert len(redis) == 1

    redis[0].kill()
    job = wait_for_end(service, create(service))

    assert_done_once(service, job, undisturbed_digest)


def test_a_killed_service_leaves_nothing_behind_and_its_successor_finishes_the_job(
    tmp_path: Path,
) -> None:
    gate = tmp_path / "gate"
    first = embedded_service(tmp_path)
    with running(first):
        job_id = create(first, wait_for=str(gate))
        wait_in_the_middle(first, job_id)
        processes = family(first)
        first.process_of("serve").kill()
        wait_until_gone(processes, timeout_s=30)

    with running(embedded_service(tmp_path)) as second:
        wait_until(second, job_id, status="running", phase="debiasing")
        gate.touch()
        job = wait_for_end(second, job_id)

        assert job["status"] == "succeeded"
        assert [type_ for _, type_ in snapshot(second, job_id)["events"]].count(
            "job.succeeded"
        ) == 1


def test_a_service_told_to_stop_leaves_nothing_running(tmp_path: Path) -> None:
    service = embedded_service(tmp_path)
    with running(service):
        job_id = create(service, wait_for=str(tmp_path / "never"))
        wait_in_the_middle(service, job_id)
        processes = family(service)

    wait_until_gone(processes, timeout_s=5)
    assert service.processes["serve"].returncode == 0
    assert outcomes(service, job_id) == ["drained"]


def test_the_parent_of_a_running_worker_holds_nothing_that_must_not_cross_a_fork(
    service: Service, undisturbed_digest: str
) -> None:
    parent = service.process_of("worker")

    def holds_no_database() -> bool:
        return not [file for file in parent.open_files() if "debias.db" in file.path]

    # Its own short writes open the file for a moment.
    wait_for(holds_no_database, timeout_s=10, what="a parent without an open database")
    assert parent.num_threads() == 1
    mapped = [region.path for region in parent.memory_maps()]
    assert not [path for path in mapped if "libtorch" in path or "obstore" in path]


def test_worker_and_broker_have_sessions_of_their_own(service: Service) -> None:
    serve = service.process_of("serve")

    sessions = {os.getsid(child.pid) for child in serve.children()}

    # An interrupt from a terminal goes to a session: it must reach the service alone.
    assert len(serve.children()) >= 2
    assert os.getsid(serve.pid) not in sessions


def test_a_second_service_on_the_same_home_is_refused(service: Service) -> None:
    second = subprocess.run(
        [sys.executable, "-m", "app.cli.main", "serve", "--port", str(reserve_ports(1)[0])],
        env={**service.environment, "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert second.returncode == 1
    assert "Another service is running" in second.stderr


@pytest.mark.parametrize(
    "point",
    [
        *(pytest.param(point, marks=pytest.mark.slow) for point in EARLY_POINTS + LATE_POINTS),
        "uploaded",
        "committed",
    ],
)
def test_a_crash_at_any_point_ends_in_one_success(
    point: str, undisturbed_digest: str, tmp_path: Path
) -> None:
    with running(embedded_service(tmp_path, DEBIAS_FAULT=f"{point}:1")) as service:
        job = wait_for_end(service, create(service))

        assert_done_once(service, job, undisturbed_digest)
