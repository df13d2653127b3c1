"""Wait for a job without holding a thread or a connection."""

import re
import time
from uuid import UUID

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from app.api.deps import Caller
from app.api.sse import stream_owner
from app.domain.states import TERMINAL, JobStatus
from app.schemas.jobs import MAX_WAIT_S
from app.services.jobs import get_job

_PREFER_WAIT = re.compile(r"(?:^|[,;\s])wait=(\d{1,4})(?:$|[,;\s])")


def preferred_wait(request: Request) -> float:
    """Seconds that `Prefer: wait=` asks for, at most a minute; 0 without one."""
    match = _PREFER_WAIT.search(request.headers.get("prefer", ""))
    return min(float(match[1]), MAX_WAIT_S) if match else 0.0


async def wait_for_change(caller: Caller, job_id: UUID, wait_s: float) -> None:
    """Return when the job's status changes, when it is finished, or when the time is over."""
    until = time.monotonic() + wait_s

    def read_status() -> JobStatus:
        with caller.uow() as u:
            return JobStatus(get_job(u, job_id).status)

    with caller.runtime.watcher.watch(job_id, stream_owner(caller)) as watch:
        first = status = await run_in_threadpool(read_status)
        while status == first and status not in TERMINAL:
            left = until - time.monotonic()
            if left <= 0 or not await watch.changed(left):
                return
            status = await run_in_threadpool(read_status)
