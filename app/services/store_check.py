"""Compare what the database says with what the object store holds."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from app.db.repositories import inventory
from app.db.repositories.inventory import ExpectedObject
from app.db.repositories.retention import oldest_live_attempt
from app.db.session import Database
from app.dispatch.gc.stored import pages, unknown_objects
from app.domain.retention import Horizon, RetentionPeriods
from app.storage.keys import PROJECTS
from app.storage.objects import ObjectMissing, ObjectStore

GRACE = RetentionPeriods().grace


@dataclass(frozen=True, slots=True)
class StoreCheck:
    """What a check has found. The lists hold sentences, without an end mark.

    Attributes
    ----------
    broken
        Rows whose bytes are not there, or are others: something was lost.
    orphans
        Bytes that no row speaks of, older than the grace: the collector deletes them.
    """

    objects: int
    size_bytes: int
    broken: tuple[str, ...]
    orphans: tuple[str, ...]

    @property
    def sound(self) -> bool:
        """Whether rows and objects fit each other."""
        return not self.broken and not self.orphans


def check_store(
    database: Database,
    store: ObjectStore,
    *,
    digests: bool = False,
    grace: timedelta = GRACE,
) -> StoreCheck:
    """Look for rows without bytes and for bytes without rows, while the service runs or not.

    Holds key and size of every object in memory, about 200 bytes each.

    Parameters
    ----------
    digests
        Also read every blob and compare its SHA-256.
    grace
        Younger objects without a row are no orphans: their row may be on its way.
    """
    before = _horizon(database, grace).stored
    sizes: dict[str, int] = {}
    orphans: list[str] = []
    for page in pages(store.list(PROJECTS)):
        sizes |= {info.key: info.size_bytes for info in page}
        old = [info for info in page if info.modified_at < before]
        orphans += [
            f"object {info.key} of {info.size_bytes} bytes has no row"
            for info in unknown_objects(database, old)
        ]
    orphans += [
        f"unfinished file {left.name} of {left.size_bytes} bytes"
        for left in store.unfinished(before=before)
    ]
    broken = [
        fault
        for expected in _expected(database)
        if (fault := _fault(database, store, expected, sizes.get(expected.key), digests=digests))
    ]
    with database.read() as session:
        dangling = [*inventory.dangling_references(session)]
    broken += [f"{row} refers to bytes that are not stored" for row in dangling]
    return StoreCheck(len(sizes), sum(sizes.values()), tuple(broken), tuple(orphans))


def _horizon(database: Database, grace: timedelta) -> Horizon:
    with database.read() as session:
        return Horizon.at(
            database.now(session),
            RetentionPeriods(grace=grace),
            oldest_attempt=oldest_live_attempt(session),
        )


def _expected(database: Database) -> Iterator[ExpectedObject]:
    for list_page in (inventory.expected_blobs, inventory.expected_logs):
        after: Any = None
        while True:
            with database.read() as session:
                found, after = list_page(session, after=after)
            yield from found
            if after is None:
                break


def _fault(
    database: Database,
    store: ObjectStore,
    expected: ExpectedObject,
    listed_bytes: int | None,
    *,
    digests: bool,
) -> str | None:
    fault = None
    if listed_bytes != expected.size_bytes:
        # Look again: the object may have come after the listing.
        info = store.head(expected.key)
        fault = _compare(expected, info.size_bytes if info else None)
    if fault is None and digests:
        fault = _compare_digest(store, expected)
    if fault is None:
        return None
    with database.read() as session:
        return fault if inventory.is_expected(session, expected.key) else None


def _compare(expected: ExpectedObject, size_bytes: int | None) -> str | None:
    if size_bytes is None:
        return f"object {expected.key} is missing"
    if size_bytes != expected.size_bytes:
        return f"object {expected.key} has {size_bytes} bytes instead of {expected.size_bytes}"
    return None


def _compare_digest(store: ObjectStore, expected: ExpectedObject) -> str | None:
    if expected.sha256 is None:
        return None
    digest = hashlib.sha256()
    try:
        for chunk in store.stream(expected.key):
            digest.update(chunk)
    except ObjectMissing:
        return _compare(expected, None)
    if digest.hexdigest() != expected.sha256:
        return f"object {expected.key} has another SHA-256"
    return None
