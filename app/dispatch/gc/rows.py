"""Steps that work on the database alone: the bytes that rows gave up are found as blobs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.crash_points import crash_point
from app.db.repositories import retention
from app.dispatch.gc.step import BATCH, Round
from app.domain.retention import Freed, Horizon

# Jobs of one transaction: each has many rows below it.
JOBS = 20


@dataclass(frozen=True, slots=True)
class OldRows:
    """Rows of operation that go by their age."""

    rule: retention.RowRule

    @property
    def kind(self) -> str:
        """Name of the rows."""
        return self.rule.kind

    def measure(self, work: Round) -> Freed:
        """Count them."""
        with work.database.read() as session:
            return Freed(retention.count_rows(session, self.rule, work.horizon))

    def collect(self, work: Round) -> Iterator[Freed]:
        """Delete them."""
        yield from _until_none(
            work, lambda s: retention.delete_rows(s, self.rule, work.horizon, limit=BATCH)
        )


class ExpiredArtifacts:
    """Outputs of jobs whose time in their project is over; the rows stay and say so."""

    kind = "artifacts"

    def measure(self, work: Round) -> Freed:
        """Count the artifacts."""
        return _count_in_all(work, retention.count_expiring)

    def collect(self, work: Round) -> Iterator[Freed]:
        """Announce the moments that are wrong, then expire what is due."""
        for project in work.retentions:
            _announce(work, project)
            jobs = JOBS
            while jobs == JOBS:
                with work.database.write() as session:
                    jobs, count = retention.expire_jobs(session, project, work.horizon, limit=JOBS)
                if jobs:
                    crash_point("gc_expired")
                    yield Freed(count)


class DeadCheckpoints:
    """Checkpoints that nobody can resume from any more."""

    kind = "checkpoints"

    def measure(self, work: Round) -> Freed:
        """Count them."""
        return _count_in_all(work, retention.count_checkpoints)

    def collect(self, work: Round) -> Iterator[Freed]:
        """Delete their rows."""
        for project in work.retentions:
            yield from _until_none(
                work,
                lambda s, p=project: retention.delete_checkpoints(  # type: ignore[misc]
                    s, p, work.horizon, limit=BATCH
                ),
            )


class OldEvents:
    """Events of jobs that ended long ago."""

    kind = "events"

    def measure(self, work: Round) -> Freed:
        """Count them."""
        with work.database.read() as session:
            return Freed(retention.count_events(session, work.horizon))

    def collect(self, work: Round) -> Iterator[Freed]:
        """Delete them."""
        yield from _until_none(work, lambda s: retention.delete_events(s, work.horizon, jobs=JOBS))


class DeletedJobs:
    """Jobs that their users deleted, with all rows below them. Their logs went before."""

    kind = "jobs"

    def measure(self, work: Round) -> Freed:
        """Count the jobs."""
        with work.database.read() as session:
            return Freed(retention.count_purgeable(session, work.horizon))

    def collect(self, work: Round) -> Iterator[Freed]:
        """Delete them."""
        for freed in _until_none(work, lambda s: retention.purge_jobs(s, work.horizon, limit=JOBS)):
            crash_point("gc_purged")
            yield freed


def _count_in_all(
    work: Round, count: Callable[[Session, retention.ProjectRetention, Horizon], int]
) -> Freed:
    with work.database.read() as session:
        return Freed(sum(count(session, project, work.horizon) for project in work.retentions))


def _announce(work: Round, project: retention.ProjectRetention) -> None:
    after, first = None, True
    while first or after is not None:
        first = False
        with work.database.write() as session:
            after = retention.redate_artifacts(
                session, project, after=after, limit=BATCH, now=work.horizon.now
            )


def _until_none(work: Round, delete: Callable[[Session], int]) -> Iterator[Freed]:
    while True:
        with work.database.write() as session:
            rows = delete(session)
        if not rows:
            return
        yield Freed(rows)
