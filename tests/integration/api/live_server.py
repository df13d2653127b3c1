"""The application behind a real socket, for streams and for a real client."""

import socket
import threading

import uvicorn

from app.cli.servers import server_config
from app.main import create_app
from tests.integration.api.callers import Caller


class LiveServer:
    """The application behind a real socket: the test client reads streams to their end first."""

    def __init__(self, caller: Caller) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        app = create_app(caller.app.settings, maintenance=False)
        config = server_config(app, caller.app.settings)
        config.timeout_graceful_shutdown = 5
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, args=([listener],), daemon=True)

    def start(self) -> str:
        self.thread.start()
        url = f"http://127.0.0.1:{self.port}"
        while not self.server.started:
            assert self.thread.is_alive()
        return url

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(20)
