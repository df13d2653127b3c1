"""The one task: claim a job and run an attempt at it."""

from datetime import timedelta
from functools import partial
from uuid import UUID

import sqlalchemy as sa
import structlog
from sqlalchemy.orm import Session

from app.crash_points import crash_point
from app.db.events import append_event, last_event
from app.db.repositories.execution import Claim, claim_job, clear_dispatch
from app.db.tables import Job
from workers.attempt.run import Attempt
from workers.attempt.services import AttemptServices, until_reachable
from workers.disk import MARGIN, Room, WorkerDisk, never_fits

log = structlog.get_logger()

DISK_LOW_DELAY_S = 60.0
DISK_LOW = "disk_low"


class JobRunner:
    """Runs jobs in a worker's child, one after the other."""

    def __init__(self, services: AttemptServices) -> None:
        self.services = services
        self._running: Attempt | None = None
        self._disk = WorkerDisk(
            services.scratch_dir,
            services.scratch_min_free_bytes,
            hub_cache_dir=services.fetch.hub_cache_dir,
        )

    def run(self, job_id: UUID, dispatch: int) -> bool:
        """Run the job of one message; False when the message was old or could not be used."""
        services = self.services
        needed = until_reachable(lambda: self._estimated_bytes(job_id), "claim", services=services)
        room = self._disk.room_for(needed)
        if not room.is_enough and not room.can_never_be:
            give_back = partial(self._give_back, job_id, dispatch, room)
            until_reachable(give_back, "give_back", services=services)
            return False
        claim = until_reachable(lambda: self._claim(job_id, dispatch), "claim", services=services)
        if claim is None:
            log.info("message_dropped", job_id=str(job_id), dispatch=dispatch)
            return False
        crash_point("claimed", claim.attempt)
        self._running = Attempt(self.services, claim)
        try:
            if room.can_never_be:
                self._running.refuse(never_fits(room))
            else:
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

    def _estimated_bytes(self, job_id: UUID) -> int:
        """Give the disk that the job will need, by its estimate and a margin."""
        with self.services.database.read() as session:
            found = session.execute(sa.select(Job.estimate).where(Job.id == job_id))
            estimate = found.scalar_one_or_none() or {}
        return int(MARGIN * estimate.get("disk_bytes", 0))

    def _give_back(self, job_id: UUID, dispatch: int, room: Room) -> None:
        """Leave the job to another worker or a later time, without using up an attempt."""
        with self.services.database.write() as session:
            now = self.services.database.now(session)
            run_after = now + timedelta(seconds=DISK_LOW_DELAY_S)
            cleared = clear_dispatch(session, job_id, dispatch, run_after=run_after)
            if cleared and not _knows_of_low_disk(session, job_id):
                message = (
                    f"The worker {self.services.worker.host} has too little free disk for this "
                    f"job: {room}. It waits, and is offered to a worker again every minute. Free "
                    "space below DEBIAS_SCRATCH_DIR to speed it up."
                )
                data = {"code": DISK_LOW, "message": message}
                append_event(session, job_id, "job.warning", now=now, data=data, level="warning")
        log.warning(DISK_LOW, job_id=str(job_id), room=str(room))


def _knows_of_low_disk(session: Session, job_id: UUID) -> bool:
    """Tell whether that is the last thing the job's events say: one a minute helps nobody."""
    last = last_event(session, job_id)
    return last is not None and last.data.get("code") == DISK_LOW
