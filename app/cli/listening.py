"""Take the port of a server, before anything is started that a taken one would stop again."""

import errno
import socket
from collections.abc import Iterable
from typing import Any

from app.domain.errors import Conflict

# A name may stand for an address of IPv6 on a machine that has none.
_ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def listen(host: str, port: int) -> list[socket.socket]:
    """Listen on every address of `host`; connections wait until the server accepts them.

    Raises
    ------
    Conflict
        When the port is taken, or no address of `host` is one of this machine.
    """
    opened: list[socket.socket] = []
    reason = "it is no address of this machine"
    try:
        for family, address in _addresses(host, port):
            try:
                opened.append(socket.create_server(address, family=family))
            except OSError as exc:
                if exc.errno not in _ABSENT:
                    raise
    except OSError as exc:
        _close(opened)
        if exc.errno == errno.EADDRINUSE:
            message = f"Port {port} of {host} is taken: choose another with --port."
            raise Conflict(message) from exc
        reason = exc.strerror or str(exc)
    if not opened:
        raise Conflict(f"Cannot listen on port {port} of {host}: {reason}.")
    return opened


def _addresses(host: str, port: int) -> Iterable[tuple[socket.AddressFamily, Any]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # A hosts file may give one address twice.
    return dict.fromkeys((family, address) for family, _, _, _, address in found)


def _close(opened: list[socket.socket]) -> None:
    for listener in opened:
        listener.close()
    opened.clear()
