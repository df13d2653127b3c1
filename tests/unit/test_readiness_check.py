"""The thread that checks readiness outlives whatever a check raises."""

from typing import cast

import pytest

from app.api import readiness
from app.api.readiness import ReadinessMonitor
from app.db.session import Database
from app.storage.objects import ObjectStore


class Store:
    def put_bytes(self, key: str, data: bytes) -> None:
        del key, data


def test_a_check_that_fails_in_an_unknown_way_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([RuntimeError("unknown"), True])

    def broker_ok() -> bool:
        answer = next(answers, True)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(readiness, "CHECK_PERIOD_S", 0.001)
    store = cast(ObjectStore, Store())
    database = Database("sqlite://")
    monitor = ReadinessMonitor(database, store, broker_ok=broker_ok)
    monkeypatch.setattr(monitor, "_ask_database", lambda: (True, True))

    monitor.start()
    try:
        for _ in range(1000):
            if monitor.current().broker:
                break
            monitor._draining.wait(0.005)
        assert monitor.current().broker is True
    finally:
        monitor.stop()
        database.dispose()
