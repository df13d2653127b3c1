"""Look after the object store from the command line, with or without a running service."""

from collections.abc import Iterator
from contextlib import contextmanager

from app.db.schema import require_current
from app.db.session import Database
from app.dispatch.gc.collector import Collector
from app.services.connections import store_of
from app.services.store_check import check_store
from app.settings import Settings
from app.storage.objects import ObjectStore


def print_garbage(settings: Settings, *, dry_run: bool) -> None:
    """Collect garbage, or say what would be collected, by kind."""
    with _opened(settings) as (database, store):
        report = Collector(database, store).run_once(dry_run=dry_run)
    for kind, freed in report.freed.items():
        print(f"{kind:<20} {freed.rows:>10,} rows {freed.size_bytes:>18,} bytes")
    verb = "would be freed" if dry_run else "freed"
    print(f"{report.total.size_bytes:,} bytes of the object store {verb}.")


def print_check(settings: Settings, *, digests: bool) -> int:
    """Compare rows and objects; the status is 1 when bytes are missing or others."""
    with _opened(settings) as (database, store):
        found = check_store(database, store, digests=digests)
    for fault in (*found.broken, *found.orphans):
        print(f"{fault}.")
    print(
        f"{found.objects:,} objects of {found.size_bytes:,} bytes: {len(found.broken):,} rows "
        f"without their bytes, {len(found.orphans):,} objects without a row."
    )
    return 1 if found.broken else 0


@contextmanager
def _opened(settings: Settings) -> Iterator[tuple[Database, ObjectStore]]:
    database = Database(settings.resolved_database_url, pooled=False)
    try:
        require_current(database)
        yield database, store_of(settings)
    finally:
        database.dispose()
