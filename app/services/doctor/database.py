"""The database, and what it knows of the workers."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path

import sqlalchemy as sa

from app.db.repositories.operations import probe_writing, queue_depths
from app.db.repositories.workers import page_of_workers
from app.db.schema import current_revision, head_revision
from app.db.session import Database
from app.db.tables import Worker
from app.dispatch.timing import Timing
from app.domain.sizes import size_in_words
from app.services.doctor.findings import Finding, ok, problem, warning
from app.settings import Settings

# Leases and limits compare times of several hosts; NTP keeps them within milliseconds.
_MOST_SKEW_S = 5.0
_CONNECT_TIMEOUT_S = 5
_MOST_WORKERS = 500
_UPGRADE = "Run `debias db upgrade` with this release."


def check_database(settings: Settings) -> Iterator[Finding]:
    """Connect, compare the schema, write something and compare the clocks."""
    if _is_missing_file(settings):
        yield problem("There is no database yet.", "Run `debias serve` or `debias db upgrade`.")
        return
    database = _open(settings)
    try:
        found, wanted = current_revision(database), head_revision()
        if found != wanted:
            yield problem(f"The schema is at {found or 'none'}, not at {wanted}.", _UPGRADE)
            return
        yield from _write(database)
        yield from _clock(database)
    except sa.exc.OperationalError as exc:
        yield problem(
            f"The database cannot be used: {_first_line(exc)}",
            "Check DEBIAS_DATABASE_URL, that the server runs, and that it lets this user in.",
        )
    finally:
        database.dispose()


def _write(database: Database) -> Iterator[Finding]:
    try:
        with database.write() as session:
            probe_writing(session)
    except sa.exc.DBAPIError as exc:
        yield problem(
            f"The database cannot be written: {_first_line(exc)}",
            "Check its rights and its disk, and that it is no read-only replica.",
        )
        return
    dialect = database.engine.dialect
    number = ".".join(map(str, dialect.server_version_info or ()))
    yield ok(f"{dialect.name} {number} can be written; its schema is {head_revision()}.")


def _clock(database: Database) -> Iterator[Finding]:
    with database.read() as session:
        skew = abs((database.now(session) - datetime.now(UTC)).total_seconds())
    if skew > _MOST_SKEW_S:
        yield warning(
            f"The clocks of this machine and of the database differ by {skew:.0f} s.",
            "Let both follow a time server (NTP): limits and links end too early or too late.",
        )


def check_workers(settings: Settings) -> Iterator[Finding]:
    """See that each device class has a live worker of this release with room to work."""
    if _is_missing_file(settings):
        return
    database = _open(settings)
    try:
        with database.read() as session:
            timeout_s = Timing.from_lease(settings.lease_ttl_s).worker_timeout_s
            since = database.now(session) - timedelta(seconds=timeout_s)
            rows = page_of_workers(session, ["ready"], before=None, limit=_MOST_WORKERS)
            live = [row for row in rows if row.last_seen_at >= since]
            depths = queue_depths(session)
        for name in settings.device_classes:
            depth = depths.get(name)
            yield _class(name, live, depth.queued + depth.dispatched if depth else 0)
        for worker in live:
            yield from _worker(worker)
    except sa.exc.DBAPIError:
        yield problem("Unknown: the database does not say.", "See the line on the database.")
    finally:
        database.dispose()


def _class(name: str, live: Sequence[Worker], waiting: int) -> Finding:
    serving = sum(name in worker.classes for worker in live)
    if serving:
        return ok(f"{serving} live for class {name}; {waiting} job(s) wait.")
    message = f"None is alive for class {name}; {waiting} job(s) wait."
    hint = f"Start `debias worker --classes {name}`, or `debias serve` on a single machine."
    return problem(message, hint) if waiting else warning(message, hint)


def _worker(worker: Worker) -> Iterator[Finding]:
    ours, theirs = version("evenhand"), worker.versions.get("evenhand")
    if theirs != ours:
        yield warning(
            f"The worker on {worker.host} runs release {theirs}, this is {ours}.",
            "Bring the API and the workers to the same release.",
        )
    if worker.disk_low:
        free = size_in_words(worker.disk_free_bytes or 0)
        yield problem(
            f"The worker on {worker.host} takes no jobs: only {free} are free for scratch.",
            "Free space there, or run `debias cache clear` on that machine.",
        )


def _open(settings: Settings) -> Database:
    return Database(
        settings.resolved_database_url, pooled=False, connect_timeout_s=_CONNECT_TIMEOUT_S
    )


def _is_missing_file(settings: Settings) -> bool:
    """Look before opening: SQLite would make the file."""
    url = sa.make_url(settings.resolved_database_url)
    return url.get_backend_name() == "sqlite" and not Path(url.database or "").exists()


def _first_line(error: sa.exc.DBAPIError) -> str:
    return str(error.orig).strip().partition("\n")[0]
