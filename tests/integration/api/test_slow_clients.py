"""Clients that send or read slowly, or send too much, end their own connection and nothing else."""

import json
import re
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import httpx
import pytest

from app.api import body, protocol
from tests.integration.api.callers import Caller
from tests.integration.api.runs import finished_job

PATIENCE_S = 20
# What is tested lies in front of any database.
pytestmark = pytest.mark.parametrize("app", ["sqlite"], indirect=True)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines as short as a test can wait for."""
    monkeypatch.setattr(body, "BODY_DEADLINE_S", 0.3)
    monkeypatch.setattr(protocol, "RECEIVE_DEADLINE_S", 0.6)
    monkeypatch.setattr(protocol, "STALLED_READER_S", 0.3)


class Connection:
    """A socket to the service, on which every byte is our own."""

    def __init__(self, url: str, *, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(("127.0.0.1", urlsplit(url).port or 0))

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def trickle(self, data: bytes) -> None:
        """Send a byte ten times a second until the service ends the connection."""
        for byte in data * 100:
            readable, _, _ = select.select([self.socket], [], [], 0.1)
            if readable:
                return
            self.send(bytes([byte]))
        raise AssertionError("the service waits for ever")

    def read_all(self) -> bytes:
        """Read until the service ends the connection."""
        found = b""
        with suppress(ConnectionResetError):
            while chunk := self.socket.recv(65536):
                found += chunk
        return found


@pytest.fixture
def connection(live: str) -> Iterator[Connection]:
    opened = Connection(live)
    yield opened
    opened.socket.close()


def problem_in(answer: bytes) -> dict[str, object]:
    found: dict[str, object] = json.loads(answer.partition(b"\r\n\r\n")[2])
    return found


@pytest.mark.usefixtures("impatient")
def test_headers_that_do_not_end_are_waited_for_no_longer(connection: Connection) -> None:
    connection.send(b"GET /livez HTTP/1.1\r\nHost: x\r\n")

    connection.trickle(b"X-A: b\r\n")

    assert connection.read_all() == b""


@pytest.mark.usefixtures("impatient")
def test_connection_that_says_nothing_is_closed(connection: Connection) -> None:
    assert connection.read_all() == b""


@pytest.mark.usefixtures("impatient")
def test_body_that_does_not_end_is_answered_and_the_connection_closed(
    connection: Connection,
) -> None:
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    connection.send(head + b"Content-Length: 1000\r\n\r\n")

    connection.trickle(b" ")
    answer = connection.read_all()

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert problem_in(answer)["code"] == "request_timeout"


@pytest.mark.usefixtures("impatient")
def test_body_that_nobody_reads_holds_no_connection(connection: Connection) -> None:
    connection.send(b"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n")
    assert connection.socket.recv(65536).startswith(b"HTTP/1.1 200 ")

    connection.trickle(b" ")

    assert connection.read_all() == b""


@pytest.mark.usefixtures("impatient")
def test_client_that_does_not_read_its_answer_is_cut_off(caller: Caller, live: str) -> None:
    size = 32 * 1024 * 1024  # beyond what the kernel holds for a socket
    job_id = finished_job(caller, {"checkpoint/model.safetensors": bytes(size)})
    artifact = caller.get(f"/v1/jobs/{job_id}/artifacts").json()["data"][0]["id"]
    reader = Connection(live, receive_buffer=4096)
    path = f"/v1/artifacts/{artifact}/content"
    reader.send(
        f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {caller.key}\r\n\r\n".encode()
    )

    wait_until_content_was_answered(live)

    assert len(reader.read_all()) < size


def wait_until_content_was_answered(url: str) -> None:
    """Wait until the answer is counted, which it is at its end, however it ends."""
    ended = threading.Event()
    for _ in range(int(PATIENCE_S / 0.2)):
        text = httpx.get(f"{url}/metrics").text
        if re.search(r'route="/v1/artifacts/\{artifact_id\}/content"', text):
            return
        ended.wait(0.2)
    raise AssertionError("the answer is still being sent")


def test_headers_of_any_size_are_not_collected(connection: Connection) -> None:
    connection.send(b"GET /livez HTTP/1.1\r\nHost: x\r\n")

    with suppress(ConnectionError):
        for _ in range(64):
            connection.send(b"X-A: " + b"a" * 4096 + b"\r\n")

    assert connection.read_all()[:13] in (b"HTTP/1.1 400 ", b"")


def test_one_header_of_any_size_is_not_collected(connection: Connection) -> None:
    connection.send(b"GET /livez HTTP/1.1\r\nX-A: ")

    with suppress(ConnectionError):
        for _ in range(64):
            connection.send(b"a" * 4096)

    assert connection.read_all()[:13] in (b"HTTP/1.1 400 ", b"")


def test_url_of_any_length_is_not_collected(connection: Connection) -> None:
    with suppress(ConnectionError):
        connection.send(b"GET /" + b"a" * 300_000)

    assert connection.read_all()[:13] in (b"HTTP/1.1 400 ", b"")


def test_slow_clients_keep_nobody_from_being_answered(live: str) -> None:
    slow = [Connection(live) for _ in range(100)]
    for number, opened in enumerate(slow):
        opened.send(b"GET /livez HTTP/1.1\r\n" if number % 2 else b"POST /v1/jobs HTTP/1.1\r\n")
        opened.send(b"Host: x\r\nContent-Length: 9\r\n" + (b"" if number % 2 else b"\r\n{"))

    answers = [httpx.get(f"{live}/version").status_code for _ in range(20)]

    assert answers == [200] * 20
    for opened in slow:
        opened.socket.close()


def test_answer_beyond_the_limit_of_connections_is_a_problem_document(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr("app.cli.servers.connection_limit", lambda: 3)
    live = request.getfixturevalue("live")
    idle = [Connection(live) for _ in range(3)]

    answer = httpx.get(f"{live}/livez")

    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert answer.headers["retry-after"]
    for opened in idle:
        opened.socket.close()


def test_server_does_not_say_what_it_runs_on(live: str) -> None:
    assert "server" not in httpx.get(f"{live}/livez").headers


@pytest.mark.parametrize("more", [b"", b"Expect: 100-continue\r\n"], ids=["plain", "expect"])
def test_body_that_says_it_is_too_large_is_refused_unread(
    connection: Connection, more: bytes
) -> None:
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"

    connection.send(head + more + b"Content-Length: 1048577\r\n\r\n")
    answer = connection.read_all()

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert problem_in(answer)["code"] == "too_large"


def test_bytes_are_counted_where_no_length_is_given(connection: Connection) -> None:
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"

    connection.send(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 17)
    connection.send(b"0\r\n\r\n")
    answer = connection.read_all()

    assert answer.startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("hosts", [b"", b"Host: a\r\nHost: b\r\n"], ids=["none", "two"])
def test_request_names_one_host(connection: Connection, hosts: bytes) -> None:
    connection.send(b"GET /livez HTTP/1.1\r\n" + hosts + b"Connection: close\r\n\r\n")
    answer = connection.read_all()

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert "Send one Host header" in str(problem_in(answer)["detail"])
