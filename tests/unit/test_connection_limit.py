"""How many connections a process takes."""

import pytest

from app.cli.servers import MAX_CONNECTIONS, OTHER_FILES, connection_limit


def test_connections_leave_files_for_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (1024, 4096))
    assert connection_limit() == 1024 - OTHER_FILES

    monkeypatch.setattr("resource.getrlimit", lambda _: (100_000, 100_000))
    assert connection_limit() == MAX_CONNECTIONS
