"""Wait for a job without holding a thread or a connection."""

import re
from uuid import UUID

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from app.api.conditional import is_unchanged, version_tag
from app.api.deps import Caller
from app.domain.errors import Unauthenticated
from app.domain.states import TERMINAL, JobStatus
from app.schemas.jobs import MAX_WAIT_S
from app.services.jobs import get_job
from app.services.keys import REFUSAL

_PREFER_WAIT = re.compile(r"(?:^|[,;\s])wait=(\d{1,4})(?:$|[,;\s])")


def preferred_wait(request: Request) -> float:
    """Seconds that `Prefer: wait=` asks for, at most a minute; 0 without one."""
    match = _PREFER_WAIT.search(request.headers.get("prefer", ""))
    return min(float(match[1]), MAX_WAIT_S) if match else 0.0


async def wait_for_change(caller: Caller, request: Request, job_id: UUID, wait_s: float) -> None:
    """Return when the job's status changes, when it is finished, or when the time is over.

    A client that says by `If-None-Match` what it saw last, and has missed a change since, is not
    kept waiting for the next one. Raises `Unauthenticated` when the key stops working meanwhile.
    """
    clock = caller.context.database.clock
    until = clock.monotonic() + wait_s

    def read() -> tuple[JobStatus, bool]:
        with caller.uow() as u:
            job = get_job(u, job_id)
            missed = "if-none-match" in request.headers and not is_unchanged(
                request, version_tag(job.version)
            )
            return JobStatus(job.status), missed

    with caller.runtime.watcher.watch(job_id, caller.principal) as watch:
        first, missed = await run_in_threadpool(read)
        status = first
        while status == first and status not in TERMINAL and not missed:
            left = until - clock.monotonic()
            if left <= 0 or not await watch.changed(left):
                return
            if watch.key_is_dead:
                raise Unauthenticated(REFUSAL)
            status, _ = await run_in_threadpool(read)
