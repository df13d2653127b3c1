"""The one task: claim a job and run an attempt at it."""

from datetime import timedelta
from uuid import UUID

import sqlalchemy as sa
import structlog

from app.db.events import append_event
from app.db.repositories.execution import Claim, claim_job, clear_dispatch
from app.db.tables import Job
from workers.attempt.run import Attempt
from workers.attempt.services import AttemptServices
from workers.runtime.faults import crash_point
from workers.runtime.scratch import free_bytes

log = structlog.get_logger()

DISK_LOW_DELAY_S = 60.0
# Estimates of disk use are rough; a job that fills the disk takes others with it.
DISK_MARGIN = 1.2
DISK_LOW_MESSAGE = "A worker had too little free disk for this job, which waits for more."


class JobRunner:
    """Runs jobs in a worker's child, one after the other."""

    def __init__(self, services: AttemptServices) -> None:
        self.services = services
        self._running: Attempt | None = None

    def run(self, job_id: UUID, dispatch: int) -> bool:
        """Run the job of one message; False when the message was old or could not be used."""
        if self._disk_is_low(job_id):
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

    def drain(self) -> bool:
        """Ask the running attempt to stop and give its job back; False if none is running."""
        attempt = self._running
        if attempt is None:
            return False
        attempt.drain()
        return True

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
                crash_point("claiming", dispatch)
            return claim

    def _disk_is_low(self, job_id: UUID) -> bool:
        services = self.services
        with services.database.read() as session:
            found = session.execute(sa.select(Job.estimate).where(Job.id == job_id))
            estimate = found.scalar_one_or_none() or {}
        needed = int(DISK_MARGIN * estimate.get("disk_bytes", 0))
        return free_bytes(services.scratch_dir) < max(needed, services.scratch_min_free_bytes)

    def _give_back(self, job_id: UUID, dispatch: int) -> None:
        """Leave the job to another worker or a later time, without using up an attempt."""
        with self.services.database.write() as session:
            now = self.services.database.now(session)
            run_after = now + timedelta(seconds=DISK_LOW_DELAY_S)
            if clear_dispatch(session, job_id, dispatch, run_after=run_after):
                data = {"code": "disk_low", "message": DISK_LOW_MESSAGE}
                append_event(session, job_id, "job.warning", now=now, data=data, level="warning")
        log.warning("disk_low", job_id=str(job_id))
