"""A stand-in for an S3 server that fails as told; what it can do right, a real one is used for."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

STARTED = b"<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>"


@dataclass
class Script:
    """What the server answers and what it was asked."""

    endpoint_url: str = ""
    failing_puts: int = 0
    stored_bytes: int = 0
    requests: list[str] = field(default_factory=list)


@contextmanager
def failing_s3(*, failing_puts: int = 0, stored_bytes: int = 0) -> Iterator[Script]:
    """Serve: 503 to the first PUTs, then success; HEAD reports `stored_bytes`."""
    script = Script(failing_puts=failing_puts, stored_bytes=stored_bytes)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(script))
    script.endpoint_url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(script: Script) -> type[BaseHTTPRequestHandler]:
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                fails = script.failing_puts > 0
                script.failing_puts -= 1
            self._answer(503 if fails else 200)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self._answer(200, STARTED)

        def do_HEAD(self) -> None:
            self._answer(200, size_bytes=script.stored_bytes)

        def do_DELETE(self) -> None:
            self._answer(204)

        def log_message(self, format: str, *args: object) -> None:
            """Keep the test's output clean."""

        def _answer(self, status: int, body: bytes = b"", *, size_bytes: int | None = None) -> None:
            script.requests.append(f"{self.command} {self.path} {status}")
            self.send_response(status)
            self.send_header("Content-Length", str(len(body) if size_bytes is None else size_bytes))
            self.send_header("ETag", '"e"')
            self.send_header("Last-Modified", "Mon, 30 Nov 2026 12:00:00 GMT")
            self.end_headers()
            self.wfile.write(body)

    return Handler
