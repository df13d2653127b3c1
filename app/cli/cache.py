"""Look into the cache of hub files, and empty it."""

from datetime import UTC, datetime

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from app.domain.sizes import size_in_words
from app.integrations.hub.eviction import HubCache
from app.settings import Settings


def list_cache(settings: Settings, console: Console) -> None:
    """Print the cached commits, the least recently used first, which would go first."""
    commits = HubCache(settings.hub_cache_dir).commits()
    table = Table(box=SIMPLE_HEAD)
    for heading in ("last used (UTC)", "size", "in use by a job", "folder"):
        table.add_column(heading, no_wrap=True)
    for commit in commits:
        used = datetime.fromtimestamp(commit.last_used_at, UTC)
        table.add_row(
            f"{used:%Y-%m-%d %H:%M}",
            size_in_words(commit.size_bytes),
            "yes" if commit.linked else "",
            str(commit.folder.relative_to(settings.hub_cache_dir)),
        )
    console.print(table)
    total = sum(commit.size_bytes for commit in commits)
    console.print(
        f"{len(commits)} commit(s), {size_in_words(total)} of at most "
        f"{size_in_words(settings.hub_cache_max_bytes)} in {settings.hub_cache_dir}",
        highlight=False,
    )


def clear_cache(settings: Settings, console: Console) -> None:
    """Remove all that no job uses."""
    cache = HubCache(settings.hub_cache_dir)
    evicted = cache.shrink(0)
    kept = len(cache.commits())
    console.print(
        f"Removed {evicted.commits} commit(s), {size_in_words(evicted.freed_bytes)}"
        + (f"; {kept} in use are kept." if kept else "."),
        highlight=False,
    )
