"""A client that opens a stream and does not read it is cut off, and holds next to nothing."""

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from app.api import streams
from app.db.events import append_event
from tests.integration.api.callers import Caller, job_uuid
from tests.integration.api.live_server import LiveServer
from tests.integration.api.runs import start
from tests.service import wait_for

# More than all buffers of the kernel take from a server whose client does not read.
EVENTS = 600
EVENT_BYTES = 32_000


@pytest.fixture
def live(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(streams, "SLOW_CLIENT_S", 1)
    server = LiveServer(caller)
    yield server.start()
    server.stop()


def open_streams(url: str) -> float:
    lines = httpx.get(f"{url}/metrics", timeout=10).text.splitlines()
    return float(next(line for line in lines if line.startswith("debias_sse_streams ")).split()[1])


def test_a_client_that_does_not_read_its_stream_is_cut_off(caller: Caller, live: str) -> None:
    job_id = caller.create_job()["id"]
    start(caller, job_id)
    with caller.app.database.write() as session:
        now = caller.app.database.now(session)
        for _ in range(EVENTS):
            data = {"code": "long", "message": "x" * EVENT_BYTES}
            append_event(session, job_uuid(job_id), "job.warning", now=now, data=data)
    before = psutil.Process().memory_info().rss
    with socket.socket() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.connect(("127.0.0.1", urlsplit(live).port))
        lazy.sendall(
            f"GET /v1/jobs/{job_id}/events HTTP/1.1\r\nHost: test\r\n"
            f"Accept: text/event-stream\r\nAuthorization: Bearer {caller.key}\r\n\r\n".encode()
        )
        wait_for(lambda: open_streams(live) == 1, timeout_s=30, what="the open stream")

        wait_for(lambda: open_streams(live) == 0, timeout_s=30, what="the end of the stream")

    # One batch of 256 events is held at a time, not all that there are.
    assert psutil.Process().memory_info().rss - before < 4 * 256 * EVENT_BYTES
