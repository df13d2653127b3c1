"""Whether a job finds room on the worker's disk, and how room is made."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import structlog

from app.domain.errors import JobErrorCode, JobFailure
from app.domain.sizes import size_in_words
from app.integrations.hub.eviction import HubCache
from workers.runtime.scratch import nearest_existing, remove_abandoned

log = structlog.get_logger()

# Estimates of disk use are rough; a job that fills the disk takes others with it.
MARGIN = 1.2
# Somebody who looks after the disk once a day loses no job.
LONGEST_WAIT_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Room:
    """What a job needs, by its estimate with a margin, and what the disk has."""

    job_bytes: int
    least_bytes: int
    free_bytes: int
    total_bytes: int

    @property
    def missing_bytes(self) -> int:
        """What is to become free before the job may begin; not positive where it may."""
        return max(self.job_bytes, self.least_bytes) - self.free_bytes

    @property
    def is_enough(self) -> bool:
        """Whether the job may begin: it fits, and no less is free than the operator wants."""
        return self.missing_bytes <= 0

    @property
    def can_never_be(self) -> bool:
        """Whether the job would not fit on the empty disk."""
        return self.job_bytes > self.total_bytes

    def __str__(self) -> str:
        """Write the numbers for people."""
        needed = size_in_words(max(self.job_bytes, self.least_bytes))
        free, total = size_in_words(self.free_bytes), size_in_words(self.total_bytes)
        return f"{needed} needed, {free} of {total} free"


class WorkerDisk:
    """The disk that attempts work on, and the cache that gives way to them."""

    def __init__(self, scratch_dir: Path, least_bytes: int, *, hub_cache_dir: Path) -> None:
        self._scratch_dir = scratch_dir
        self._least_bytes = least_bytes
        self._hub_cache_dir = hub_cache_dir

    def room_for(self, job_bytes: int = 0) -> Room:
        """Measure the room for a job that needs `job_bytes`, and make some where it is too little.

        First go the folders of killed attempts, which a new child would remove: none comes to a
        worker whose full disk keeps jobs away. Then cached models give way, if that is enough.
        """
        room = self._measure(job_bytes)
        if room.is_enough or room.can_never_be:
            return room
        if removed := remove_abandoned(self._scratch_dir):
            log.info("scratch_removed", folders=removed)
            room = self._measure(job_bytes)
        if room.is_enough or not self._shares_disk_with_cache():
            return room
        cache = HubCache(self._hub_cache_dir)
        evicted = cache.make_room(lambda: self._measure(job_bytes).missing_bytes)
        if evicted.commits:
            log.info("hub_cache_evicted", commits=evicted.commits, freed_bytes=evicted.freed_bytes)
        return self._measure(job_bytes)

    def _measure(self, job_bytes: int) -> Room:
        usage = shutil.disk_usage(nearest_existing(self._scratch_dir))
        return Room(job_bytes, self._least_bytes, usage.free, usage.total)

    def _shares_disk_with_cache(self) -> bool:
        folders = nearest_existing(self._scratch_dir), nearest_existing(self._hub_cache_dir)
        return folders[0].stat().st_dev == folders[1].stat().st_dev


def never_fits(room: Room) -> JobFailure:
    """Describe a job that is larger than the disk of this worker.

    It may be tried again: another worker may have a larger one.
    """
    return JobFailure(
        JobErrorCode.DISK_FULL,
        f"The worker's whole disk is too small for this job: {room}.",
        "Choose a smaller model, or have the operator point DEBIAS_SCRATCH_DIR at a larger disk.",
        retryable=True,
    )


def waited_too_long(room: Room) -> JobFailure:
    """Describe a job that found too little room whenever it was offered to a worker."""
    return JobFailure(
        JobErrorCode.DISK_FULL,
        f"The job waited {LONGEST_WAIT_S / 3600:.0f} h for room on a worker's disk: {room}.",
        "Choose a smaller model, or have the operator free space below DEBIAS_SCRATCH_DIR; then "
        "retry the job.",
    )
