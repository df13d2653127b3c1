"""The clients of a soak: they send keyed requests until they are answered."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

from bench.deployments import Tenant
from bench.soak.plan import PlannedJob
from debias_client import ApiError, Client, ConnectionFailed, Job
from debias_client.retries import RetryPolicy

REQUEST_TIMEOUT_S = 20.0
# How long a client of a killed API tries; far more than a restart takes.
PATIENCE_S = 180.0
PAUSE_S = 0.3
ROOM_POLL_S = 0.2


@dataclass
class Clients:
    """One client thread a project; each goes to the next API when one does not answer."""

    urls: Sequence[str]
    tenants: Sequence[Tenant]
    # How many jobs have ended: the clients keep a bounded backlog, as a queue of people does.
    ended: Callable[[], int]
    backlog: int
    accepted: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, jobs: Sequence[PlannedJob]) -> None:
        """Send all jobs, each until it is accepted; cancel those that are to be cancelled."""
        with ThreadPoolExecutor(len(self.tenants)) as pool:
            shares = [
                [job for job in jobs if job.tenant == number] for number in range(len(self.tenants))
            ]
            for _ in pool.map(self._send_share, self.tenants, shares):
                pass

    def _send_share(self, tenant: Tenant, jobs: Sequence[PlannedJob]) -> None:
        with ExitStack() as stack:
            once = RetryPolicy(max_attempts=1)
            connected = [
                stack.enter_context(Client(url, tenant.key, timeout=REQUEST_TIMEOUT_S, retry=once))
                for url in self.urls
            ]
            for job in jobs:
                self._wait_for_room()
                self._send(connected, job)

    def _send(self, connected: Sequence[Client], job: PlannedJob) -> None:
        created = self._insist(
            connected, job.number, lambda client: client.jobs.create(job.body, f"key-{job.name}")
        )
        with self._lock:
            self.accepted[job.name] = str(created["id"])
        if job.cancel_after_s is None:
            return
        time.sleep(job.cancel_after_s)
        # 409: the job was faster.
        with suppress(ApiError):
            self._insist(connected, job.number, lambda client: client.jobs.cancel(created["id"]))

    def _insist(
        self, connected: Sequence[Client], first: int, call: Callable[[Client], Job]
    ) -> Job:
        """Repeat a call on one API after the other until one answers it."""
        until = time.monotonic() + PATIENCE_S
        turn = first
        while True:
            try:
                answer = call(connected[turn % len(connected)])
            except (ConnectionFailed, ApiError) as failure:
                refused = isinstance(failure, ApiError) and failure.status < 500
                if refused or time.monotonic() > until:
                    raise
                with self._lock:
                    self.counts[type(failure).__name__] += 1
                time.sleep(PAUSE_S)
                turn += 1
                continue
            with self._lock:
                self.counts["answered"] += 1
            return answer

    def _wait_for_room(self) -> None:
        while len(self.accepted) - self.ended() >= self.backlog:
            time.sleep(ROOM_POLL_S)
