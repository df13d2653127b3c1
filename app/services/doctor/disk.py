"""The home folder and the room on the disks."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from app.domain.sizes import size_in_words
from app.integrations.hub.eviction import HubCache
from app.services.doctor.findings import Finding, ok, problem, warning
from app.settings import Settings

# An SQLite database, logs and a small job's outputs; below this anything may fail next.
_LEAST_HOME_BYTES = 1024**3
_LEAST_INODES = 10_000


def check_home(settings: Settings) -> Iterator[Finding]:
    """See that the home is there, is ours alone, and can be written."""
    home = settings.home
    if not home.exists():
        yield from _missing_home(home)
        return
    if not home.is_dir():
        yield problem(f"{home} is no folder.", "Set DEBIAS_HOME to a folder.")
        return
    try:
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError as exc:
        yield problem(
            f"{home} cannot be written: {exc.strerror}.",
            "Give it to the user that runs the service, or set DEBIAS_HOME to another folder.",
        )
        return
    facts = home.stat()
    if facts.st_uid != os.geteuid():
        yield warning(
            f"{home} belongs to another user (uid {facts.st_uid}).",
            "Run debias as that user, or the service will not be able to use what you make.",
        )
    if stat.S_IMODE(facts.st_mode) & 0o077:
        yield warning(
            f"Other users of this machine may look into {home}.", f"Run: chmod 700 {home}"
        )
    else:
        yield ok(f"{home} is there, private and writable.")


def _missing_home(home: Path) -> Iterator[Finding]:
    parent = _nearest(home)
    if parent.is_dir() and os.access(parent, os.W_OK):
        yield ok(f"{home} is not there yet; `debias serve` or `debias db upgrade` makes it.")
    else:
        yield problem(
            f"{home} is not there, and {parent} cannot be written.",
            "Set DEBIAS_HOME to a folder of the user that runs the service.",
        )


def check_disk(settings: Settings) -> Iterator[Finding]:
    """Compare the free space of home, scratch and cache with what is asked for."""
    scratch = settings.resolved_scratch_dir
    free = shutil.disk_usage(_nearest(scratch)).free
    least = settings.scratch_min_free_bytes
    words = f"{size_in_words(free)} free for scratch in {scratch}"
    if free < least:
        yield problem(
            f"{words}: a worker here takes no job below {size_in_words(least)}.",
            "Free space, point DEBIAS_SCRATCH_DIR at a larger disk, or lower "
            "DEBIAS_SCRATCH_MIN_FREE_BYTES.",
        )
    else:
        yield ok(f"{words}; {size_in_words(least)} must stay free.")
    yield from _home_room(settings.home)
    cached = sum(commit.size_bytes for commit in HubCache(settings.hub_cache_dir).commits())
    yield ok(
        f"The cache of hub files has {size_in_words(cached)} of "
        f"{size_in_words(settings.hub_cache_max_bytes)}."
    )


def _home_room(home: Path) -> Iterator[Finding]:
    place = _nearest(home)
    free = shutil.disk_usage(place).free
    if free < _LEAST_HOME_BYTES:
        yield problem(
            f"Only {size_in_words(free)} free in {home}.",
            "Free space: the database and the store need some to write at all.",
        )
    facts = os.statvfs(place)
    if facts.f_files and facts.f_favail < _LEAST_INODES:
        yield problem(
            f"The file system of {home} has only {facts.f_favail} inodes left.",
            "Remove small files there, or use another file system.",
        )


def _nearest(folder: Path) -> Path:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder
