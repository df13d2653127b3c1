"""A real S3 server behind a relay that fails as told, request by request."""

import http.client
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import parse_qs, urlsplit

from tests.server_addresses import S3Address

Step = Literal["head", "get", "put", "start", "part", "complete", "abort", "other"]
# `lost`: the server did it, and its answer never arrives. `cut`: half of the body arrives.
Fault = Literal["500", "503", "slow_down", "expired", "no_bucket", "reset", "silent", "lost", "cut"]

_ERROR = "<Error><Code>{code}</Code><Message>as asked</Message></Error>"
_STATUS = {
    "500": (500, "InternalError"),
    "503": (503, "ServiceUnavailable"),
    "slow_down": (503, "SlowDown"),
    "expired": (403, "ExpiredToken"),
    "no_bucket": (404, "NoSuchBucket"),
}
HOP_HEADERS = {"connection", "transfer-encoding", "keep-alive"}


@dataclass
class S3Relay:
    """What to do to which kind of request, and what was asked for."""

    address: S3Address
    faults: dict[Step, list[Fault]] = field(default_factory=dict)
    requests: list[tuple[Step, Fault | None]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ended: threading.Event = field(default_factory=threading.Event)

    def fail(self, step: Step, fault: Fault, *, times: int = 1) -> None:
        """Do this to the next requests of this kind."""
        with self._lock:
            self.faults[step] = [fault] * times

    def mend(self) -> None:
        """Relay everything as it is."""
        with self._lock:
            self.faults.clear()

    def count(self, step: Step) -> int:
        """Number of requests of this kind so far."""
        return sum(seen == step for seen, _ in self.requests)

    def next_fault(self, step: Step) -> Fault | None:
        with self._lock:
            waiting = self.faults.get(step)
            fault = waiting.pop(0) if waiting else None
            self.requests.append((step, fault))
            return fault


@contextmanager
def relayed_s3(server: S3Address) -> Iterator[S3Relay]:
    """Serve at another address what `server` serves."""
    target = urlsplit(server.endpoint_url)
    relay = S3Relay(server)
    http_server = ThreadingHTTPServer(
        ("127.0.0.1", 0), _handler(relay, str(target.hostname), target.port or 80)
    )
    http_server.daemon_threads = True
    relay.address = replace(server, endpoint_url=f"http://127.0.0.1:{http_server.server_port}")
    thread = threading.Thread(target=http_server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield relay
    finally:
        relay._ended.set()
        http_server.shutdown()
        thread.join()
        http_server.server_close()


def step_of(method: str, path: str) -> Step:
    """Tell which step of the store's work a request is."""
    query = parse_qs(urlsplit(path).query, keep_blank_values=True)
    if method == "HEAD":
        return "head"
    if method == "GET":
        return "other" if "list-type" in query else "get"
    if method == "PUT":
        return "part" if "uploadId" in query else "put"
    if method == "POST" and "uploads" in query:
        return "start"
    if method == "POST" and "uploadId" in query:
        return "complete"
    return "abort" if method == "DELETE" and "uploadId" in query else "other"


def _handler(relay: S3Relay, host: str, port: int) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            fault = relay.next_fault(step_of(self.command, self.path))
            if fault == "reset":
                self._reset()
            elif fault == "silent":
                relay._ended.wait()
            elif fault in _STATUS:
                status, code = _STATUS[fault]
                self._answer(status, [], _ERROR.format(code=code).encode())
            else:
                self._relay(body, fault)

        do_PUT = do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815 - names of http.server

        def _relay(self, body: bytes, fault: Fault | None) -> None:
            upstream = http.client.HTTPConnection(host, port)
            # The Host of the request is part of its signature.
            upstream.request(self.command, self.path, body, dict(self.headers.items()))
            answer = upstream.getresponse()
            data = answer.read()
            upstream.close()
            if fault == "lost":
                self._reset()
                return
            headers = [(k, v) for k, v in answer.getheaders() if k.lower() not in HOP_HEADERS]
            self._answer(answer.status, headers, data, cut=fault == "cut")

        def _answer(
            self, status: int, headers: list[tuple[str, str]], data: bytes, *, cut: bool = False
        ) -> None:
            self.send_response_only(status)
            for name, value in headers:
                self.send_header(name, value)
            if not any(name.lower() == "content-length" for name, _ in headers):
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data[: len(data) // 2] if cut else data)
            if cut:
                self._reset()

        def _reset(self) -> None:
            """Close with a RST, as a server does whose process died."""
            self.close_connection = True
            self.wfile.flush()
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()

        def log_message(self, format: str, *args: object) -> None:
            """Keep the test's output clean."""

    return Handler
