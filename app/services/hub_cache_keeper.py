"""Cut the cache of hub files on the API's host, where no job does it."""

import threading
from pathlib import Path

import structlog

from app.integrations.hub.eviction import Evicted, HubCache

log = structlog.get_logger()

PERIOD_S = 600.0


class HubCacheKeeper:
    """A thread that cuts the cache from time to time.

    A worker cuts it after each model that it fetches. The API keeps listings and headers only,
    but of every model that anybody asks about, and may run on a host without a worker.
    """

    def __init__(self, cache_dir: Path, max_bytes: int) -> None:
        self._cache = HubCache(cache_dir)
        self._max_bytes = max_bytes
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hub-cache", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join()

    def run_once(self) -> Evicted:
        """Cut the cache once."""
        evicted = self._cache.shrink(self._max_bytes)
        if evicted.commits:
            log.info("hub_cache_cut", commits=evicted.commits, freed_bytes=evicted.freed_bytes)
        return evicted

    def _run(self) -> None:
        while not self._stopped.wait(PERIOD_S):
            try:
                self.run_once()
            except OSError:  # a disk in trouble must not end the thread
                log.exception("hub_cache_not_cut")
