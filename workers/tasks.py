"""The one task: claim a job and run an attempt at it."""

from datetime import timedelta
from uuid import UUID

import structlog

from app.db.repositories.execution import Claim, claim_job, clear_dispatch
from workers.attempt.run import Attempt
from workers.attempt.services import AttemptServices
from workers.runtime.faults import crash_point
from workers.runtime.scratch import free_bytes

log = structlog.get_logger()

DISK_LOW_DELAY_S = 60.0


class JobRunner:
    """Runs jobs in a worker's child, one after the other."""

    def __init__(self, services: AttemptServices) -> None:
        self.services = services
        self._running: Attempt | None = None

    def run(self, job_id: UUID, dispatch: int) -> bool:
        """Run the job of one message; False when the message was old or could not be used."""
        if self._disk_is_low():
            self._give_back(job_id, dispatch)
            return False
        claim = self._claim(job_id, dispatch)
        if claim is None:
            log.info("message_dropped", job_id=str(job_id), dispatch=dispatch)
            return False
        crash_point("claimed", claim.attempt)
        self._running = Attempt(self.services, claim)
        try:
            self._running.run()
        finally:
            self._running = None
        return True

    def drain(self) -> None:
        """Ask the running attempt, if any, to stop and give its job back."""
        attempt = self._running
        if attempt is not None:
            attempt.drain()

    def _claim(self, job_id: UUID, dispatch: int) -> Claim | None:
        services = self.services
        with services.database.write() as session:
            claim = claim_job(
                session,
                job_id,
                dispatch,
                worker=services.worker,
                now=services.database.now(session),
                lease_ttl_s=services.timing.lease_ttl_s,
            )
            if claim is not None:
                crash_point("claiming", claim.attempt)
            return claim

    def _disk_is_low(self) -> bool:
        services = self.services
        return free_bytes(services.scratch_dir) < services.scratch_min_free_bytes

    def _give_back(self, job_id: UUID, dispatch: int) -> None:
        """Leave the job to another worker, without using up an attempt."""
        with self.services.database.write() as session:
            now = self.services.database.now(session)
            run_after = now + timedelta(seconds=DISK_LOW_DELAY_S)
            clear_dispatch(session, job_id, dispatch, run_after=run_after)
        log.warning("disk_low", job_id=str(job_id))
