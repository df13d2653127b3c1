"""Run all steps of the garbage collector."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import structlog

from app.db.repositories.retention import ROW_RULES, list_retentions, oldest_live_attempt
from app.db.session import Database
from app.dispatch.gc.rows import (
    DeadCheckpoints,
    DeletedJobs,
    ExpiredArtifacts,
    OldEvents,
    OldRows,
)
from app.dispatch.gc.step import Round, Step
from app.dispatch.gc.stored import DeadBlobs, OldLogs, UnfinishedWrites, UnknownObjects
from app.dispatch.isolation import isolated
from app.domain.retention import Freed, Horizon, RetentionPeriods
from app.storage.objects import ObjectStore

log = structlog.get_logger()

# In this order a run frees what the steps before have given up: rows first, then their bytes.
STEPS: tuple[Step, ...] = (
    *(OldRows(rule) for rule in ROW_RULES),
    ExpiredArtifacts(),
    DeadCheckpoints(),
    OldLogs(),
    OldEvents(),
    DeletedJobs(),
    DeadBlobs(),
    UnknownObjects(),
    UnfinishedWrites(),
)
KINDS = tuple(step.kind for step in STEPS)


@dataclass(frozen=True, slots=True)
class GcReport:
    """What a run deleted, or would delete, by kind.

    `complete` is False when it was stopped before the end; the next run goes on.
    """

    dry_run: bool
    complete: bool
    freed: dict[str, Freed] = field(default_factory=dict)

    @property
    def total(self) -> Freed:
        """All kinds together."""
        return sum(self.freed.values(), Freed())


class Collector:
    """Deletes what has outlived its time.

    Every step is idempotent and commits in small transactions: any number of replicas may run
    it, and kill -9 at any point leaves nothing that the next run does not finish.

    Parameters
    ----------
    on_freed
        Told after each batch, for metrics.
    """

    def __init__(
        self,
        database: Database,
        store: ObjectStore,
        *,
        periods: RetentionPeriods | None = None,
        on_freed: Callable[[str, Freed], None] | None = None,
    ) -> None:
        self._database = database
        self._store = store
        self._periods = periods or RetentionPeriods()
        self._on_freed = on_freed
        self._stopping = threading.Event()

    def run_once(self, *, dry_run: bool = False, budget_s: float | None = None) -> GcReport:
        """Collect once; after `budget_s`, end with the batch at hand.

        A step that fails, as without the store, holds up no other: its error is raised at the end.
        """
        work = self._begin()
        ends_at = None if budget_s is None else self._database.clock.monotonic() + budget_s
        freed: dict[str, Freed] = {}
        errors: list[Exception] = []
        for step in STEPS:
            freed[step.kind] = Freed()
            with isolated("collecting_failed", kind=step.kind) as failed:
                for batch in self._batches(step, work, dry_run):
                    freed[step.kind] += batch
                    if self._has_to_end(ends_at):
                        return self._report(GcReport(dry_run, complete=False, freed=freed))
            errors += failed
            if failed and self._has_to_end(ends_at):
                break
        report = self._report(GcReport(dry_run, complete=not errors, freed=freed))
        if errors:
            raise errors[0]
        return report

    def stop(self) -> None:
        """Let a run in another thread end with the batch at hand; none begins any more."""
        self._stopping.set()

    def _begin(self) -> Round:
        with self._database.read() as session:
            # Before anything is listed: what begins later makes only what is younger.
            horizon = Horizon.at(
                self._database.now(session),
                self._periods,
                oldest_attempt=oldest_live_attempt(session),
            )
            return Round(self._database, self._store, horizon, tuple(list_retentions(session)))

    def _batches(self, step: Step, work: Round, dry_run: bool) -> Iterator[Freed]:
        if dry_run:
            yield step.measure(work)
            return
        for batch in step.collect(work):
            if self._on_freed is not None:
                self._on_freed(step.kind, batch)
            yield batch

    def _has_to_end(self, ends_at: float | None) -> bool:
        late = ends_at is not None and self._database.clock.monotonic() >= ends_at
        return late or self._stopping.is_set()

    def _report(self, report: GcReport) -> GcReport:
        rows = {kind: freed.rows for kind, freed in report.freed.items() if freed.rows}
        if rows:
            log.info(
                "garbage_collected",
                dry_run=report.dry_run,
                complete=report.complete,
                rows=rows,
                freed_bytes=report.total.size_bytes,
            )
        return report
