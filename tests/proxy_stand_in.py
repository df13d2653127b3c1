"""A forward proxy on this host: it tunnels CONNECT, forwards plain GETs, and notes both."""

import socket
import threading
from contextlib import suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_CHUNK_BYTES = 65_536


class ProxyStandIn:
    """A running proxy; use it as a context manager.

    `seen` has one line per request: the method and where it goes. While `status` is set, every
    request is refused with it.
    """

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.status: int | None = None
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


def _handler(proxy: ProxyStandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        stand_in = proxy

    return Handler


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stand_in: ProxyStandIn

    def log_message(self, format: str, *args: object) -> None:
        """Keep test output clean."""

    def do_CONNECT(self) -> None:
        if self._refused(self.path):
            return
        host, _, port = self.path.rpartition(":")
        self.close_connection = True
        with socket.create_connection((host, int(port))) as target:
            self.send_response(200)
            self.end_headers()
            back = threading.Thread(target=_pump, args=(target, self.connection), daemon=True)
            back.start()
            _pump(self.connection, target)
            back.join()

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if self._refused(url.netloc):
            return
        connection = HTTPConnection(url.netloc)
        headers = {key: value for key, value in self.headers.items() if key != "Proxy-Connection"}
        connection.request("GET", f"{url.path}?{url.query}", headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        self.send_response(answer.status)
        for key, value in answer.getheaders():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)

    def _refused(self, target: str) -> bool:
        proxy = self.stand_in
        proxy.seen.append(f"{self.command} {target}")
        if proxy.status is None:
            return False
        self.send_response(proxy.status)
        self.send_header("Content-Length", "0")
        self.end_headers()
        return True


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_CHUNK_BYTES):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
