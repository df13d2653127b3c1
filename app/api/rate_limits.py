"""Limits on how often one key may ask, counted in Redis where the deployment has one."""

import math
from collections.abc import Mapping
from uuid import UUID

import structlog
from limits import RateLimitItem, RateLimitItemPerMinute
from limits.errors import StorageError
from limits.storage import MemoryStorage, RedisStorage
from limits.strategies import FixedWindowRateLimiter
from limits.util import WindowStats
from redis.backoff import NoBackoff
from redis.connection import ConnectionPool
from redis.retry import Retry

from app.domain.clock import Clock
from app.domain.errors import RateLimited
from app.settings import Settings

WINDOW_S = 60
# Redis and this host need not agree to the second.
CLOCK_TOLERANCE_S = 5
SAFE_METHODS = frozenset({"GET", "HEAD"})
KEY_PREFIX = "debias-limits"
REDIS_SCHEMES = ("redis://", "rediss://")
KOMBU_SOCKET_SCHEME = "redis+socket://"
# One request waits this long for a silent Redis, and then none does for as long as the pause.
REDIS_TIMEOUT_S = 0.1
PAUSE_S = 30.0

logger = structlog.get_logger()


class RateLimiter:
    """Counts the requests of each key, reads and writes apart, in windows of a minute.

    Without an answer from Redis it counts for this process alone, so that a broken broker
    neither stops a request nor lifts the limit.
    """

    def __init__(
        self,
        *,
        read_per_minute: int,
        write_per_minute: int,
        clock: Clock,
        pool: ConnectionPool | None = None,
    ) -> None:
        self._read = _item(read_per_minute)
        self._write = _item(write_per_minute)
        self._clock = clock
        self._pool = pool
        self._shared = _shared_counter(pool) if pool else None
        self._local = FixedWindowRateLimiter(MemoryStorage())
        self._paused_until = -math.inf
        self._is_down = False

    def close(self) -> None:
        """Close the connections."""
        if self._pool is not None:
            self._pool.disconnect()

    def admit(self, key_id: UUID, http_method: str) -> Mapping[str, str]:
        """Count a request and return the headers that tell its sender what is left.

        Raises
        ------
        RateLimited
            With the same headers, when nothing is left.
        """
        kind = "read" if http_method in SAFE_METHODS else "write"
        item = self._read if kind == "read" else self._write
        if item is None:
            return {}
        admitted, stats = self._count(item, f"{kind}:{key_id}")
        wait_s = max(1, math.ceil(stats.reset_time - self._clock.now().timestamp()))
        headers = {
            "RateLimit-Policy": f'"{kind}";q={item.amount};w={WINDOW_S}',
            "RateLimit": f'"{kind}";r={stats.remaining};t={wait_s}',
        }
        if not admitted:
            raise RateLimited(
                f"This key may send {item.amount} {kind} requests a minute. "
                f"Wait {wait_s} s; the events of a job stream without further requests.",
                retry_after_s=wait_s,
                headers=headers,
            )
        return headers

    def _count(self, item: RateLimitItem, name: str) -> tuple[bool, WindowStats]:
        if self._shared is None or self._clock.monotonic() < self._paused_until:
            return self._hit(self._local, item, name)
        try:
            counted = self._hit(self._shared, item, name)
        except StorageError as exc:
            self._note_failure(exc)
            return self._hit(self._local, item, name)
        self._is_down = False
        return counted

    def _hit(
        self, counter: FixedWindowRateLimiter, item: RateLimitItem, name: str
    ) -> tuple[bool, WindowStats]:
        """Count; begin a new window where the clock was set back in the middle of one."""
        admitted = counter.hit(item, name)
        stats = counter.get_window_stats(item, name)
        if stats.reset_time - self._clock.now().timestamp() <= WINDOW_S + CLOCK_TOLERANCE_S:
            return admitted, stats
        counter.clear(item, name)
        return counter.hit(item, name), counter.get_window_stats(item, name)

    def _note_failure(self, exc: StorageError) -> None:
        self._paused_until = self._clock.monotonic() + PAUSE_S
        if not self._is_down:
            self._is_down = True
            logger.warning("rate_limits_not_shared", error=str(exc))


def limiter_of(settings: Settings, clock: Clock) -> RateLimiter:
    """Make the limiter that the settings describe; nothing is connected yet."""
    return RateLimiter(
        read_per_minute=settings.rate_limit_read,
        write_per_minute=settings.rate_limit_write,
        clock=clock,
        pool=_pool_of(settings.broker_url),
    )


def _pool_of(broker_url: str | None) -> ConnectionPool | None:
    """Give connections to the broker's Redis; None for a broker that is none."""
    url = (broker_url or "").replace(KOMBU_SOCKET_SCHEME, "unix://", 1)
    if not url.startswith((*REDIS_SCHEMES, "unix://")):
        return None
    return ConnectionPool.from_url(
        url,
        socket_timeout=REDIS_TIMEOUT_S,
        socket_connect_timeout=REDIS_TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
    )


def _shared_counter(pool: ConnectionPool) -> FixedWindowRateLimiter:
    # The pool decides where to; the URI only says that it is a Redis.
    storage = RedisStorage("redis://", pool, KEY_PREFIX, wrap_exceptions=True)
    return FixedWindowRateLimiter(storage)


def _item(per_minute: int) -> RateLimitItem | None:
    return RateLimitItemPerMinute(per_minute) if per_minute else None
