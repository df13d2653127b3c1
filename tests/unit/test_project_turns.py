"""Whose turn it is among the costly requests of a project."""

import asyncio
from uuid import UUID

import pytest

from app.api import turns
from app.api.turns import AT_ONCE, MAX_WAITING, ProjectTurns
from app.domain.errors import RateLimited

ONE, OTHER = UUID(int=1), UUID(int=2)


class Crowd:
    """Requests that have their turn until they are let go."""

    def __init__(self, project_turns: ProjectTurns) -> None:
        self._turns = project_turns
        self.let_go = asyncio.Event()
        self.inside: list[UUID] = []
        self.most = 0

    async def request(self, project_id: UUID) -> None:
        async with self._turns.take(project_id):
            self.inside.append(project_id)
            self.most = max(self.most, self.inside.count(ONE))
            await self.let_go.wait()
            self.inside.remove(project_id)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_requests_beyond_the_limit_wait_and_those_of_another_project_do_not() -> None:
    async def run() -> None:
        crowd = Crowd(ProjectTurns())
        async with asyncio.TaskGroup() as group:
            for project_id in [ONE] * (AT_ONCE + 5) + [OTHER]:
                group.create_task(crowd.request(project_id))
            await settled()
            assert crowd.inside == [ONE] * AT_ONCE + [OTHER]
            crowd.let_go.set()
        assert (crowd.inside, crowd.most) == ([], AT_ONCE)

    asyncio.run(run())


def test_line_has_an_end() -> None:
    async def run() -> None:
        project_turns = ProjectTurns()
        crowd = Crowd(project_turns)
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE + MAX_WAITING):
                group.create_task(crowd.request(ONE))
            await settled()
            with pytest.raises(RateLimited) as caught:
                await crowd.request(ONE)
            crowd.let_go.set()
        assert caught.value.retry_after_s
        await crowd.request(ONE)

    asyncio.run(run())


def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE_S", 0)

    async def run() -> None:
        crowd = Crowd(ProjectTurns())
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(crowd.request(ONE))
            await settled()
            with pytest.raises(RateLimited):
                await crowd.request(ONE)
            crowd.let_go.set()
        await crowd.request(ONE)

    asyncio.run(run())


def test_request_that_fails_gives_its_turn_back() -> None:
    async def run() -> None:
        project_turns = ProjectTurns()
        for _ in range(AT_ONCE + 1):
            with pytest.raises(ZeroDivisionError):
                async with project_turns.take(ONE):
                    raise ZeroDivisionError
        assert not project_turns._lines  # nothing is kept of a project that asks no more

    asyncio.run(run())
