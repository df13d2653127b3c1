"""Jobs: create, watch, stop, and list what they leave behind."""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, cast
from urllib.parse import quote

from debias_client.errors import WaitTimeout
from debias_client.events import JobEventStream
from debias_client.pages import as_object, read_pages
from debias_client.schemas import TERMINAL_STATUSES, Artifact, Job, JobEvent
from debias_client.transport import Call, QueryParams, Transport

# The longest `?wait=` the service grants is 60 s; proxies often cut idle lines at 60 s.
LONG_POLL_S = 30
# Where a proxy or an older service ignores `?wait=`, polls keep at least this distance.
MIN_POLL_DISTANCE_S = 1.0


class Jobs:
    """The jobs of the project that the API key belongs to."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(self, spec: Mapping[str, object], idempotency_key: str | None = None) -> Job:
        """Submit a job.

        Every call has an `Idempotency-Key`, a fresh one unless given, and sends the same one
        when it tries again: an answer lost on the way never makes a second job.
        """
        headers = {"Idempotency-Key": idempotency_key or str(uuid.uuid4())}
        return self._send(Call("POST", "/v1/jobs", repeatable=True, body=spec, headers=headers))

    def get(self, job_id: str, *, wait_s: float = 0) -> Job:
        """Read a job; with `wait_s`, as soon as its status changes or after as many seconds."""
        params: QueryParams = {"wait": round(wait_s)} if wait_s >= 1 else {}
        call = Call("GET", _path(job_id), repeatable=True, params=params, extra_timeout_s=wait_s)
        return self._send(call)

    def list(
        self,
        *,
        status: Sequence[str] = (),
        kind: Sequence[str] = (),
        method: Sequence[str] = (),
        label: Mapping[str, str] | None = None,
        name_prefix: str | None = None,
        created_after: str | None = None,
        created_before: str | None = None,
        page_size: int = 100,
    ) -> Iterator[Job]:
        """Give jobs, newest first; pages are fetched as the iteration reaches them.

        Several values of `status`, `kind` or `method` are alternatives; several labels must
        all be present. Times are RFC 3339.
        """
        params: dict[str, str | int | Sequence[str] | None] = {
            "limit": page_size,
            "status": status,
            "kind": kind,
            "method": method,
            "label": [f"{key}:{value}" for key, value in (label or {}).items()],
            "q": name_prefix,
            "created_after": created_after,
            "created_before": created_before,
        }
        given = {name: value for name, value in params.items() if value}
        return (cast("Job", item) for item in read_pages(self._transport, "/v1/jobs", given))

    def wait(
        self,
        job_id: str,
        timeout_s: float | None = None,
        *,
        on_event: Callable[[JobEvent], None] | None = None,
    ) -> Job:
        """Wait until the job has ended, well or not, and give it.

        `on_event` is called with each event from the first one on. Raises `WaitTimeout` after
        `timeout_s` seconds; the job goes on.
        """
        clock = self._transport.clock
        deadline = None if timeout_s is None else clock.monotonic() + timeout_s
        if on_event is None:
            return self._wait_by_polls(job_id, deadline)
        after = 0
        while True:
            stream = self._event_stream(job_id, after, deadline)
            for event in stream:
                on_event(event)
            job = self.get(job_id)
            if job["status"] in TERMINAL_STATUSES:
                return job
            # Somebody retried the job between its end and our reading of it.
            after = stream.last_seq

    def stream_events(self, job_id: str, after: int = 0) -> Iterator[JobEvent]:
        """Give the events after number `after` as they happen, until the job has ended.

        A broken stream is taken up where it broke. Where no stream gets through, the events
        are polled for.
        """
        return iter(self._event_stream(job_id, after, None))

    def cancel(self, job_id: str, *, keep_checkpoint: bool = False) -> Job:
        """Ask the job to stop. Doing so twice is no error, but a finished job refuses."""
        body = {"keep_checkpoint": keep_checkpoint}
        return self._send(Call("POST", f"{_path(job_id)}/cancel", repeatable=True, body=body))

    def pause(self, job_id: str) -> Job:
        """Ask a running job to keep a checkpoint and free its device. Doing so twice is no error.

        A method that keeps no checkpoints refuses. `wait` goes on waiting over a pause.
        """
        return self._send(Call("POST", f"{_path(job_id)}/pause", repeatable=True))

    def resume(self, job_id: str) -> Job:
        """Let a paused job go on from its checkpoint. Doing so twice is no error."""
        return self._send(Call("POST", f"{_path(job_id)}/resume", repeatable=True))

    def retry(
        self, job_id: str, *, start_from: Literal["checkpoint", "start"] | None = None
    ) -> Job:
        """Run a failed or cancelled job again, under the same id.

        This call is sent once only: after a lost answer, read the job to see what happened.
        """
        body = {} if start_from is None else {"from": start_from}
        return self._send(Call("POST", f"{_path(job_id)}/retry", repeatable=False, body=body))

    def artifacts(self, job_id: str) -> tuple[Artifact, ...]:
        """Give the files that the job left behind."""
        items = read_pages(self._transport, f"{_path(job_id)}/artifacts", {"limit": 100})
        return tuple(cast("Artifact", item) for item in items)

    def _wait_by_polls(self, job_id: str, deadline: float | None) -> Job:
        clock = self._transport.clock
        job = self.get(job_id)
        while job["status"] not in TERMINAL_STATUSES:
            left_s = float(LONG_POLL_S) if deadline is None else deadline - clock.monotonic()
            if left_s <= 0:
                raise WaitTimeout(job_id)
            job = self._poll(job_id, min(left_s, LONG_POLL_S))
        return job

    def _poll(self, job_id: str, wait_s: float) -> Job:
        clock = self._transport.clock
        asked_at = clock.monotonic()
        job = self.get(job_id, wait_s=wait_s)
        too_soon_s = min(wait_s, MIN_POLL_DISTANCE_S) - (clock.monotonic() - asked_at)
        if too_soon_s > 0 and job["status"] not in TERMINAL_STATUSES:
            clock.sleep(too_soon_s)
        return job

    def _event_stream(self, job_id: str, after: int, deadline: float | None) -> JobEventStream:
        return JobEventStream(
            self._transport,
            job_id,
            events_path=f"{_path(job_id)}/events",
            read_job=lambda wait_s: self._poll(job_id, wait_s),
            after=after,
            deadline=deadline,
        )

    def _send(self, call: Call) -> Job:
        return cast("Job", as_object(self._transport.send(call), call.path))


def _path(job_id: str) -> str:
    return f"/v1/jobs/{quote(job_id, safe='')}"
