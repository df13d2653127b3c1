"""Collect garbage because an operator asks for it."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from app.db.uow import UnitOfWork
from app.dispatch.gc.collector import Collector, GcReport
from app.domain.audit import AuditAction
from app.services import audit

# A request must not wait longer than proxies do; the hourly run has all the time.
BUDGET_S = 30.0
TARGET = "object store"


def collect_garbage(
    collector: Collector,
    unit: Callable[[], AbstractContextManager[UnitOfWork]],
    *,
    dry_run: bool,
) -> GcReport:
    """Run the collector for at most half a minute; a run that deletes is written to the log.

    `unit` opens a writing transaction, once the work is done.
    """
    report = collector.run_once(dry_run=dry_run, budget_s=BUDGET_S)
    if not dry_run:
        total = report.total
        details = {"rows": total.rows, "freed_bytes": total.size_bytes}
        with unit() as u:
            audit.record(u, AuditAction.GARBAGE_COLLECTED, target=TARGET, details=details)
    return report
