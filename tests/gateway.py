"""A way to a server that can be closed, silenced or led elsewhere, as a network can."""

import socket
import threading
from contextlib import suppress
from types import TracebackType

CHUNK_BYTES = 1 << 16
CONNECT_S = 5.0


class Gateway:
    """Relays TCP connections from a port of its own to a server.

    The server stays as it is; what its clients see of it is decided here.
    """

    def __init__(self, port: int) -> None:
        self.target_port = port
        self._flowing = threading.Event()
        self._flowing.set()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._dead: set[socket.socket] = set()
        self._listener = _listen(0)
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> "Gateway":
        self._accept_on(self._listener)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.refuse()

    def refuse(self) -> None:
        """Cut all connections and refuse new ones."""
        self._flowing.set()
        # Closing alone would leave a thread in accept(), and with it the port open.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def silence(self) -> None:
        """Take connections and bytes, and pass nothing on."""
        self._flowing.clear()

    def strand(self) -> None:
        """Leave open connections open and dead, as a firewall does; new ones are served."""
        with self._lock:
            self._dead |= self._open
            self._open = set()

    def cut(self) -> None:
        """Close all open connections; new ones are served."""
        with self._lock:
            victims, self._open, self._dead = self._open | self._dead, set(), set()
        for victim in victims:
            _close(victim)

    def restore(self) -> None:
        """Relay again."""
        if self._listener.fileno() == -1:
            self._listener = _listen(self.port)
            self._accept_on(self._listener)
        self._flowing.set()

    def _accept_on(self, listener: socket.socket) -> None:
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):  # how a closed listener ends the loop
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with self._lock:
            self._open.add(client)
        self._flowing.wait()
        try:
            server = socket.create_connection(("127.0.0.1", self.target_port), CONNECT_S)
        except OSError:
            _close(client)
            return
        server.settimeout(None)
        with self._lock:
            self._open.add(server)
        back = threading.Thread(target=self._pump, args=(server, client), daemon=True)
        back.start()
        self._pump(client, server)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                self._flowing.wait()
                if sink not in self._dead:
                    sink.sendall(data)
        for end in (source, sink):
            with self._lock:
                self._open.discard(end)
            _close(end)


def _listen(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    return listener


def _close(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
