"""How many streams a project may have open, and that none outlives its key."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from uuid import UUID, uuid4

import httpx
import pytest

from app.api import watcher as watching
from app.api.watcher import (
    KEPT_FOR_SMALL_PROJECTS,
    MAX_WATCHES,
    MAX_WATCHES_PER_CALLER,
    MAX_WATCHES_PER_PROJECT,
    JobWatcher,
)
from app.domain.errors import Unavailable
from app.domain.ids import IdPrefix, parse_id
from app.security.scopes import Principal, Scope
from tests.integration.api.callers import Caller, some_principal
from tests.service import wait_for


class TestLimits:
    def test_project_has_a_limit_however_many_keys_it_has(self, caller: Caller) -> None:
        watcher = JobWatcher(caller.app.database)

        async def open_many() -> int:
            with ExitStack() as stack:
                opened = open_all(watcher, stack, uuid4())
                with watcher.watch(uuid4(), some_principal()):
                    return opened

        assert asyncio.run(open_many()) == MAX_WATCHES_PER_PROJECT

    def test_greedy_projects_together_leave_some_to_others(self, caller: Caller) -> None:
        watcher = JobWatcher(caller.app.database)

        async def open_many() -> tuple[int, int]:
            with ExitStack() as stack:
                greedy = sum(open_all(watcher, stack, uuid4()) for _ in range(4))
                return greedy, open_all(watcher, stack, uuid4())

        left = MAX_WATCHES - KEPT_FOR_SMALL_PROJECTS
        assert asyncio.run(open_many()) == (left, MAX_WATCHES_PER_CALLER)

    def test_closed_ones_no_longer_count(self, caller: Caller) -> None:
        watcher, project = JobWatcher(caller.app.database), uuid4()

        async def open_twice() -> list[int]:
            opened = []
            for _ in range(2):
                with ExitStack() as stack:
                    opened.append(open_all(watcher, stack, project))
            return opened

        assert asyncio.run(open_twice()) == [MAX_WATCHES_PER_PROJECT] * 2


class TestDeadKeys:
    @pytest.fixture(autouse=True)
    def keys_are_checked_with_every_look(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(watching, "LOOKS_PER_KEY_CHECK", 1)

    @pytest.mark.parametrize(
        ("path", "accept"), [("events", "text/event-stream"), ("logs?follow=true", "text/plain")]
    )
    def test_stream_ends_soon_after_its_key(
        self, caller: Caller, live: str, path: str, accept: str
    ) -> None:
        job_id = caller.create_job()["id"]
        reader = caller.with_scopes(Scope.JOBS_READ)
        key_id = newest_key(caller)
        headers = {"Authorization": f"Bearer {reader.key}", "Accept": accept}
        url = f"{live}/v1/jobs/{job_id}/{path}"

        # Less than the 15 s between two comments of a stream, which would be waited for for ever.
        with httpx.stream("GET", url, headers=headers, timeout=12) as stream:
            assert stream.status_code == 200
            assert caller.request("DELETE", f"/v1/api-keys/{key_id}").status_code == 204
            text = stream.read().decode()

        assert "event: done" not in text
        assert httpx.get(url, headers=headers, timeout=20).status_code == 401

    def test_request_that_waits_is_refused_soon_after_its_key(
        self, caller: Caller, live: str
    ) -> None:
        url = f"{live}/v1/jobs/{caller.create_job()['id']}?wait=50"
        reader = caller.with_scopes(Scope.JOBS_READ)
        path = f"/v1/api-keys/{newest_key(caller)}"
        headers = {"Authorization": f"Bearer {reader.key}"}
        is_used: Callable[[], bool] = lambda: bool(caller.get(path).json()["last_used_at"])  # noqa: E731

        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(httpx.get, url, headers=headers, timeout=60)
            wait_for(is_used, timeout_s=20, what="the request that waits")
            caller.request("DELETE", path)

        assert waiting.result().status_code == 401

    def test_only_streams_of_dead_keys_end(self, caller: Caller) -> None:
        watcher = JobWatcher(caller.app.database)
        keys = []
        for _ in range(2):
            caller.with_scopes(Scope.JOBS_READ)
            keys.append(newest_key(caller))
        dying, living = (
            Principal(caller.project_id, parse_id(IdPrefix.KEY, key), frozenset()) for key in keys
        )
        keyless = Principal(caller.project_id, None, frozenset())

        async def end_dead() -> tuple[int, int, list[bool]]:
            with (
                watcher.watch(uuid4(), dying) as first,
                watcher.watch(uuid4(), living) as second,
                watcher.watch(uuid4(), keyless) as third,
            ):
                before = watcher.end_dead()
                caller.request("DELETE", f"/v1/api-keys/{keys[0]}")
                after = watcher.end_dead()
                return before, after, [watch.key_is_dead for watch in (first, second, third)]

        assert asyncio.run(end_dead()) == (0, 1, [True, False, False])


def open_all(watcher: JobWatcher, stack: ExitStack, project_id: UUID) -> int:
    """Open streams for a project, each with another key, until one is refused."""
    for opened in range(MAX_WATCHES + 1):
        try:
            stack.enter_context(watcher.watch(uuid4(), some_principal(project_id)))
        except Unavailable:
            return opened
    raise AssertionError("there is no limit")


def newest_key(caller: Caller) -> str:
    return str(caller.get("/v1/api-keys?limit=1").json()["data"][0]["id"])
