"""Garbage collection without grace, once nothing runs any more."""

from dataclasses import replace
from datetime import timedelta

from app.db.session import Database
from app.dispatch.gc.collector import Collector
from app.domain.retention import RetentionPeriods
from app.storage.objects import ObjectStore


def collect_garbage(database: Database, store: ObjectStore) -> str:
    """Collect what nobody refers to, however young it is; say how much of what that was."""
    periods = replace(RetentionPeriods(), grace=timedelta(0))
    report = Collector(database, store, periods=periods).run_once()
    return (
        ", ".join(
            f"{freed.rows} {kind.replace('_', ' ')}"
            for kind, freed in report.freed.items()
            if freed.rows
        )
        or "nothing"
    )
