"""A running service for acceptance tests: real processes, embedded or production shape."""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil

from debias_client import Client
from tests.servers import reserve_ports

START_TIMEOUT_S = 90.0
JOB_TIMEOUT_S = 240.0
T = TypeVar("T")
FAKE_METHODS = "app.catalog.testkit.fake"


def wait_for(probe: Callable[[], T], *, timeout_s: float, what: str) -> T:
    """Poll `probe` until it gives something true; fail with `what` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with suppress(httpx.TransportError):
            found = probe()
            if found:
                return found
        time.sleep(0.05)
    raise AssertionError(f"waited {timeout_s:.0f} s for {what}")


@dataclass
class Service:
    """One deployment below `home`; `roles` are the console commands it consists of.

    `prepare` are commands that run once before them.
    """

    home: Path
    environment: dict[str, str]
    roles: dict[str, list[str]]
    prepare: list[list[str]] = field(default_factory=list)
    port: int = field(default_factory=lambda: reserve_ports(1)[0])
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> "Service":
        self.home.mkdir(parents=True, exist_ok=True)
        for arguments in self.prepare:
            command = [sys.executable, "-m", "app.cli.main", *arguments]
            subprocess.run(command, env={**os.environ, **self.environment}, check=True)
        for role in self.roles:
            self.start_role(role)
        self.wait_until_ready()
        return self

    def start_role(self, role: str) -> None:
        arguments = [part.format(port=self.port) for part in self.roles[role]]
        with (self.home / f"{role}.log").open("ab") as log:
            self.processes[role] = subprocess.Popen(
                [sys.executable, "-m", "app.cli.main", *arguments],
                env={**os.environ, **self.environment},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_until_ready(self, url: str | None = None) -> None:
        def ready() -> bool:
            for role, process in self.processes.items():
                if process.poll() is not None:
                    raise AssertionError(f"{role} ended while starting:\n{self.log_tail(role)}")
            return httpx.get(f"{url or self.url}/readyz", timeout=2).is_success

        wait_for(ready, timeout_s=START_TIMEOUT_S, what="/readyz")

    def log_tail(self, role: str) -> str:
        return (self.home / f"{role}.log").read_text(errors="replace")[-4000:]

    def stop(self) -> None:
        for process in self.processes.values():
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def client(self) -> Client:
        return Client(self.url)

    def process_of(self, role: str) -> psutil.Process:
        """The API, the worker's parent, or the child that runs the job."""
        if role in self.processes:
            return psutil.Process(self.processes[role].pid)
        if role == "api":
            return psutil.Process(self.processes["serve"].pid)
        parent = self._worker_parent()
        if role == "worker":
            return parent
        children = parent.children()
        assert len(children) == 1, children
        return children[0]

    def _worker_parent(self) -> psutil.Process:
        if "worker" in self.processes:
            return psutil.Process(self.processes["worker"].pid)
        serve = psutil.Process(self.processes["serve"].pid)
        workers = [child for child in serve.children() if "worker" in child.cmdline()]
        assert len(workers) == 1, [child.cmdline() for child in serve.children()]
        return workers[0]


def embedded(home: Path, **environment: str) -> Service:
    """`debias serve`: SQLite, files and a private Redis."""
    return Service(home, common(home) | environment, {"serve": ["serve", "--port", "{port}"]})


def production(home: Path, urls: dict[str, str], **environment: str) -> Service:
    """`debias api` and `debias worker` on PostgreSQL, Redis and S3."""
    roles = {
        "api": ["api", "--host", "127.0.0.1", "--port", "{port}"],
        "worker": ["worker", "--classes", "cpu"],
    }
    environment = common(home) | urls | environment
    return Service(home, environment, roles, prepare=[["db", "upgrade"]])


def common(home: Path) -> dict[str, str]:
    return {
        "DEBIAS_HOME": str(home),
        "DEBIAS_AUTH_MODE": "disabled",
        "DEBIAS_EXTRA_METHODS": FAKE_METHODS,
        "DEBIAS_SCRATCH_MIN_FREE_BYTES": "0",
        "DEBIAS_SECRET_KEY": secrets.token_urlsafe(48),
        "DEBIAS_TORCH_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }


def run_job(service: Service, spec: dict[str, Any]) -> dict[str, Any]:
    """Create a job and wait for its end."""
    with service.client() as client:
        job = client.jobs.create(spec)
        return dict(client.jobs.wait(job["id"], timeout_s=JOB_TIMEOUT_S))


def events_of(service: Service, job_id: str) -> list[dict[str, Any]]:
    """All events of an ended job, oldest first."""
    with service.client() as client:
        return [dict(event) for event in client.jobs.stream_events(job_id)]
