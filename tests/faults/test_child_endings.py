"""However a child ends, its job has the right error and its worker takes the next one."""

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.faults.rig import (
    create,
    embedded_service,
    family,
    outcomes,
    running,
    wait_for_end,
    wait_until,
    wait_until_gone,
)
from tests.service import Service


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(embedded_service(tmp_path_factory.mktemp("endings"))) as started:
        yield started


def end_of(service: Service, **config: Any) -> dict[str, Any]:
    """The end of a job in trouble, and of an ordinary one after it, on the same worker."""
    troubled = create(service, **config)
    following = create(service)
    assert wait_for_end(service, following)["status"] == "succeeded"
    return wait_for_end(service, troubled)


def test_an_exception_that_cannot_leave_its_process_fails_the_job(service: Service) -> None:
    job = end_of(service, trouble="unpicklable")

    assert (job["status"], job["error"]["code"]) == ("failed", "internal")
    assert "UnpicklableError" in job["error"]["message"]


def test_a_thread_that_an_engine_leaves_behind_does_not_hold_its_process(service: Service) -> None:
    job_id = create(service, trouble="thread", step_s=0.5)
    wait_until(service, job_id, status="running", phase="debiasing")
    child = service.process_of("child")

    assert wait_for_end(service, job_id)["status"] == "succeeded"
    wait_until_gone([child], timeout_s=30)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trouble", "code"),
    [
        ("interrupt", "internal"),
        ("system_exit", "internal"),
        ("generator_exit", "internal"),
        ("unprintable", "internal"),
        ("odd_message", "internal"),
        ("recursion", "internal"),
        ("warning_as_error", "internal"),
        ("several", "oom_device"),
    ],
)
def test_what_an_engine_raises_is_the_error_of_its_only_attempt(
    service: Service, trouble: str, code: str
) -> None:
    job = end_of(service, trouble=trouble)

    assert (job["status"], job["error"]["code"]) == ("failed", code)
    assert outcomes(service, job["id"]) == ["failed"]


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ["processes", "directory", "flood"])
def test_what_an_engine_leaves_behind_harms_nobody(service: Service, trouble: str) -> None:
    assert end_of(service, trouble=trouble)["status"] == "succeeded"


@pytest.mark.slow
def test_a_bus_error_is_named(service: Service) -> None:
    job = end_of(service, trouble="bus_error")

    assert (job["error"]["code"], job["error"]["signal"]) == ("worker_lost", signal.SIGBUS)
    assert outcomes(service, job["id"]) == ["lost"] * 3


@pytest.mark.slow
def test_an_engine_that_closes_every_descriptor_loses_its_process_and_no_more(
    service: Service,
) -> None:
    job = end_of(service, trouble="descriptors", trouble_times=1)

    assert job["status"] == "succeeded"
    assert outcomes(service, job["id"])[-1] == "succeeded"
    assert len(family(service)) >= 3
