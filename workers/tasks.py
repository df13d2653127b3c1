"""The one task: claim a job and run an attempt at it."""

from datetime import datetime, timedelta
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
from workers.disk import LONGEST_WAIT_S, MARGIN, Room, WorkerDisk, never_fits, waited_too_long

log = structlog.get_logger()

DISK_LOW = "disk_low"
# Each offer to a worker costs it a child, so a job that waits for room is offered ever more rarely.
FIRST_DELAY_S = 60.0
LONGEST_DELAY_S = 900.0


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
            if until_reachable(give_back, "give_back", services=services):
                return False
        claim = until_reachable(lambda: self._claim(job_id, dispatch), "claim", services=services)
        if claim is None:
            log.info("message_dropped", job_id=str(job_id), dispatch=dispatch)
            return False
        crash_point("claimed", claim.attempt)
        self._running = Attempt(self.services, claim)
        try:
            if room.is_enough:
                self._running.run()
            else:
                failure = never_fits if room.can_never_be else waited_too_long
                self._running.refuse(failure(room))
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

    def _give_back(self, job_id: UUID, dispatch: int, room: Room) -> bool:
        """Leave the job to another worker or a later time, without using up an attempt.

        False, and nothing is done, where it has waited long enough for that.
        """
        with self.services.database.write() as session:
            now = self.services.database.now(session)
            since = _waits_for_disk_since(session, job_id)
            waited = now - (since or now)
            if waited >= timedelta(seconds=LONGEST_WAIT_S):
                return False
            run_after = now + _delay_after(waited)
            cleared = clear_dispatch(session, job_id, dispatch, run_after=run_after)
            if cleared and since is None:
                data = {"code": DISK_LOW, "message": self._low_disk_message(room)}
                append_event(session, job_id, "job.warning", now=now, data=data, level="warning")
        log.warning(DISK_LOW, job_id=str(job_id), room=str(room))
        return True

    def _low_disk_message(self, room: Room) -> str:
        return (
            f"The worker {self.services.worker.host} has too little free disk for this job: "
            f"{room}. It waits, and is offered to a worker again after a minute, then ever more "
            f"rarely, every {LONGEST_DELAY_S / 60:.0f} min in the end. Where none has room after "
            f"{LONGEST_WAIT_S / 3600:.0f} h it fails. Free space below DEBIAS_SCRATCH_DIR."
        )


def _waits_for_disk_since(session: Session, job_id: UUID) -> datetime | None:
    """Tell since when that is the last thing the job's events say: saying it once is enough."""
    last = last_event(session, job_id)
    return last.at if last is not None and last.data.get("code") == DISK_LOW else None


def _delay_after(waited: timedelta) -> timedelta:
    """Double the time that the job has waited, within limits."""
    return timedelta(seconds=min(max(waited.total_seconds(), FIRST_DELAY_S), LONGEST_DELAY_S))
