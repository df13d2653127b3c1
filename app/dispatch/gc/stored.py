"""Steps that delete from the object store. No transaction is open while they talk to it."""

from collections.abc import Iterator
from itertools import islice

from app.crash_points import crash_point
from app.db.repositories import blobs, retention
from app.db.session import Database
from app.dispatch.gc.step import BATCH, Round
from app.domain.ids import IdPrefix, parse_id
from app.domain.retention import Freed
from app.storage.keys import PROJECTS, BlobAddress, LogAddress, parse_key
from app.storage.objects import ObjectInfo

PAGE = 1000


class OldLogs:
    """Logs of jobs that ended long ago, or that are about to be purged."""

    kind = "logs"

    def measure(self, work: Round) -> Freed:
        """Count their parts."""
        with work.database.read() as session:
            return Freed(*retention.count_log_parts(session, work.horizon))

    def collect(self, work: Round) -> Iterator[Freed]:
        """Delete bytes, then rows: killed in between, the next run does both again."""
        while True:
            with work.database.read() as session:
                parts = retention.old_log_parts(session, work.horizon, limit=BATCH)
            if not parts:
                return
            work.store.delete_many([part.key for part in parts])
            crash_point("gc_logs_deleted")
            with work.database.write() as session:
                rows = retention.delete_log_parts(session, parts)
            yield Freed(rows, sum(part.size_bytes for part in parts) if rows else 0)


class DeadBlobs:
    """Bytes that no row refers to: marked, deleted, and then forgotten.

    A writer that meets the mark stores the bytes anew under a key of its own, so a collector that
    was held up, however long, deletes only what it had marked.
    """

    kind = "blobs"

    def measure(self, work: Round) -> Freed:
        """Count what would be unreferenced once the other steps were done."""
        released = retention.released(work.retentions, work.horizon)
        with work.database.read() as session:
            return Freed(*blobs.count_dying(session, before=work.horizon.stored, released=released))

    def collect(self, work: Round) -> Iterator[Freed]:
        """Mark, delete and forget, a batch at a time."""
        while True:
            with work.database.read() as session:
                dead = blobs.find_dead(session, before=work.horizon.stored, limit=BATCH)
            if dead:
                with work.database.write() as session:
                    blobs.mark_deleting(session, dead, before=work.horizon.stored)
            with work.database.read() as session:
                dying = blobs.list_dying(session, limit=BATCH)
            if not dying:
                break
            crash_point("gc_marked")
            work.store.delete_many([blob.key for blob in dying])
            crash_point("gc_bytes_deleted")
            with work.database.write() as session:
                gone = [blob for blob in dying if blobs.finish_deleting(session, blob)]
            yield Freed(len(gone), sum(blob.size_bytes for blob in gone))
        with work.database.write() as session:
            blobs.forget_deleted(session)


class UnknownObjects:
    """Objects whose row was never written, or that a deletion was not told of.

    Objects elsewhere than where blobs and logs lie are somebody else's, and left alone.
    """

    kind = "unknown_objects"

    def measure(self, work: Round) -> Freed:
        """Count them."""
        return sum((freed for freed, _ in self._found(work)), Freed())

    def collect(self, work: Round) -> Iterator[Freed]:
        """Delete them, a page of the listing at a time."""
        for freed, keys in self._found(work):
            work.store.delete_many(keys)
            crash_point("gc_swept")
            yield freed

    def _found(self, work: Round) -> Iterator[tuple[Freed, list[str]]]:
        for page in pages(work.store.list(PROJECTS)):
            old = [info for info in page if info.modified_at < work.horizon.stored]
            found = unknown_objects(work.database, old)
            if found:
                size_bytes = sum(info.size_bytes for info in found)
                yield Freed(len(found), size_bytes), [info.key for info in found]


class UnfinishedWrites:
    """What killed writers left behind in a store of files."""

    kind = "unfinished_writes"

    def measure(self, work: Round) -> Freed:
        """Count the files."""
        left = work.store.unfinished(before=work.horizon.stored)
        return Freed(len(left), sum(file.size_bytes for file in left))

    def collect(self, work: Round) -> Iterator[Freed]:
        """Delete them, and empty directories."""
        before = work.horizon.stored
        left = work.store.unfinished(before=before)
        work.store.tidy(left, before=before)
        yield Freed(len(left), sum(file.size_bytes for file in left))


def unknown_objects(database: Database, infos: list[ObjectInfo]) -> list[ObjectInfo]:
    """Pick the blobs and log parts that no row speaks of."""
    addressed = [(info, address) for info in infos if (address := parse_key(info.key))]
    if not addressed:
        return []
    digests, job_ids = [], set()
    for _, address in addressed:
        if isinstance(address, BlobAddress):
            project_id = parse_id(IdPrefix.PROJECT, address.project_id)
            if project_id is not None:
                digests.append((project_id, address.sha256))
        elif isinstance(address, LogAddress):
            job_id = parse_id(IdPrefix.JOB, address.job_id)
            if job_id is not None:
                job_ids.add(job_id)
    with database.read() as session:
        known = blobs.known_keys(session, digests) | blobs.known_log_keys(session, list(job_ids))
    return [info for info, _ in addressed if info.key not in known]


def pages(infos: Iterator[ObjectInfo]) -> Iterator[list[ObjectInfo]]:
    """Cut a listing into pages that one query can ask about."""
    while page := list(islice(infos, PAGE)):
        yield page
