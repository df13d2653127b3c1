"""The thread that wakes streams outlives whatever a look at the jobs raises."""

import asyncio
from collections.abc import Collection
from typing import cast
from uuid import UUID

import pytest

from app.api import watcher
from app.api.watcher import JobWatcher
from app.db.session import Database
from app.security.scopes import Principal
from app.services.watching import Headway

JOB = UUID(int=1)
PRINCIPAL = Principal(UUID(int=2), None, frozenset())


def test_a_look_that_fails_in_an_unknown_way_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter(range(1, 100))

    def read_headway(_database: object, *_: Collection[UUID]) -> Headway:
        number = next(looks)
        if number == 1:
            raise RuntimeError("unknown")
        return Headway({JOB: number}, {})

    monkeypatch.setattr(watcher, "read_headway", read_headway)
    watching = JobWatcher(cast(Database, None), poll_s=0.001)

    async def see_a_change() -> bool:
        with watching.watch(JOB, PRINCIPAL) as watch:
            watching.start()
            return await watch.changed(5)

    try:
        assert asyncio.run(see_a_change())
    finally:
        watching.stop()
