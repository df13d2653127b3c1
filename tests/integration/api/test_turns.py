"""A project whose jobs take long to check does not keep others from having theirs checked."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from app.api import turns
from app.api.routes import jobs
from app.api.turns import AT_ONCE
from app.services.job_plan import PlanOutcome, try_plan
from tests.integration.api.callers import JOB, Caller, RunningApp
from tests.service import wait_for

# More than there are threads for requests.
REQUESTS = 50


class SlowChecks:
    """Checks of one project's jobs that end when they are let go."""

    def __init__(self, project: Caller) -> None:
        self._project_id = project.project_id
        self.let_go = threading.Event()
        self.begun = 0

    def __call__(self, context: Any, principal: Any, request: Any) -> PlanOutcome:
        if principal.project_id == self._project_id:
            self.begun += 1
            assert self.let_go.wait(60)
        return try_plan(context, principal, request)


@pytest.fixture
def slow(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowChecks]:
    checks = SlowChecks(caller)
    monkeypatch.setattr(jobs, "try_plan", checks)
    monkeypatch.setattr(turns, "PATIENCE_S", 60)
    yield checks
    checks.let_go.set()


def test_slow_checks_of_one_project_leave_threads_to_others(
    app: RunningApp, caller: Caller, live: str, slow: SlowChecks
) -> None:
    other = app.caller()

    def check(project: Caller, path: str, timeout_s: float) -> httpx.Response:
        headers = {"Authorization": f"Bearer {project.key}"}
        return httpx.post(f"{live}{path}", json=JOB, headers=headers, timeout=timeout_s)

    paths = ["/v1/jobs/estimate", "/v1/jobs?dry_run=true"] * (REQUESTS // 2)
    with ThreadPoolExecutor(REQUESTS) as pool, ExitStack() as stack:
        stack.callback(slow.let_go.set)
        held = [pool.submit(check, caller, path, 60) for path in paths]
        wait_for(lambda: slow.begun >= AT_ONCE, timeout_s=20, what="the slow checks")

        answers = [check(other, path, 10) for path in paths[:2]]

        assert [answer.json()["valid"] for answer in answers] == [True, True]
        assert slow.begun == AT_ONCE
        slow.let_go.set()
        assert {future.result().status_code for future in held} == {200}
