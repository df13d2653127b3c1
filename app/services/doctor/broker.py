"""The broker: Redis or what speaks like it."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from redis import Redis
from redis.exceptions import AuthenticationError, AuthorizationError, RedisError

from app.services.doctor.findings import Finding, ok, problem, warning
from app.settings import Settings

_TIMEOUT_S = 3
_OLDEST = (6, 2)


def check_broker(settings: Settings) -> Iterator[Finding]:
    """Ping it, and see that it neither evicts messages nor is too old."""
    if settings.broker_url is None:
        yield ok("`debias serve` brings its own; set DEBIAS_BROKER_URL for a deployment.")
        return
    try:
        with _open(settings.broker_url) as redis:
            redis.ping()
            facts = redis.info()
    except (AuthenticationError, AuthorizationError):
        yield problem(
            "The broker refuses the name or the password.",
            "Correct DEBIAS_BROKER_URL: redis://:password@host:6379/0",
        )
        return
    except (RedisError, OSError, ValueError) as exc:
        yield problem(
            f"The broker does not answer: {exc}",
            "Check DEBIAS_BROKER_URL, and that Redis runs. Jobs wait in the database meanwhile.",
        )
        return
    yield from _judge(facts)


def _judge(facts: Mapping[str, Any]) -> Iterator[Finding]:
    number = str(facts.get("redis_version", "?"))
    name = "Valkey" if facts.get("server_name") == "valkey" else "Redis"
    if _is_old(number):
        yield warning(f"{name} {number} is older than 6.2.", "Use 6.2 or newer, or Valkey.")
    policy = str(facts.get("maxmemory_policy", "noeviction"))
    if policy == "noeviction":
        yield ok(f"{name} {number} answers; it evicts nothing.")
        return
    limited = int(facts.get("maxmemory", 0)) > 0
    make = problem if limited else warning
    yield make(
        f"{name} {number} may drop messages when its memory is full (maxmemory-policy {policy}).",
        "Set `maxmemory-policy noeviction`, and give the broker a Redis of its own.",
    )


def _is_old(number: str) -> bool:
    parts = number.split(".")[:2]
    return all(part.isdigit() for part in parts) and tuple(map(int, parts)) < _OLDEST


def _open(url: str) -> Redis:
    # kombu and redis-py spell the address of a socket differently.
    if urlsplit(url).scheme == "redis+socket":
        url = url.replace("redis+socket://", "unix://", 1)
    return Redis.from_url(
        url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S, retry=None
    )
