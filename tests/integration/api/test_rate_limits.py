"""Each key may ask so often in a minute, and no broken Redis changes that for others."""

import re
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
from starlette.testclient import TestClient
from structlog.testing import CapturingLogger

from app.api.rate_limits import PAUSE_S, RateLimiter, limiter_of
from app.db.session import Database
from app.domain.errors import RateLimited
from app.main import create_app
from app.security.scopes import GRANTABLE
from app.services.projects import ensure_default_project
from app.settings import Settings
from tests.fixtures.database import make_project
from tests.integration.api.callers import make_key
from tests.server_addresses import RedisAddress
from tests.servers import reserve_ports


class HeldClock:
    """The time of a test."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return self.seconds


def limiter(clock: HeldClock, broker_url: str | None = None) -> RateLimiter:
    settings = Settings(
        _env_file=None, broker_url=broker_url, rate_limit_read=2, rate_limit_write=1
    )
    return limiter_of(settings, clock)


@pytest.fixture
def client(sqlite_settings: Settings) -> Iterator[TestClient]:
    limits = {"rate_limit_read": 3, "rate_limit_write": 1}
    with TestClient(
        create_app(sqlite_settings.model_copy(update=limits), maintenance=False)
    ) as started:
        yield started


def key_header(client: TestClient) -> dict[str, str]:
    database: Database = client.app_state["runtime"].context.database
    key = make_key(database, make_project(database), sorted(GRANTABLE))
    return {"Authorization": f"Bearer {key}"}


def test_answers_tell_what_is_left(client: TestClient) -> None:
    key = key_header(client)

    answers = [client.get("/v1/jobs", headers=key) for _ in range(2)]

    assert [answer.headers["ratelimit-policy"] for answer in answers] == ['"read";q=3;w=60'] * 2
    left = [re.fullmatch(r'"read";r=(\d);t=\d+', a.headers["ratelimit"]) for a in answers]
    assert [match[1] for match in left if match] == ["2", "1"]


def test_request_beyond_the_limit_is_told_when_to_come_back(client: TestClient) -> None:
    key = key_header(client)
    answers = [client.get("/v1/jobs", headers=key) for _ in range(4)]

    refused = answers[-1]

    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert refused.json()["code"] == "rate_limited"
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert '"read";r=0' in refused.headers["ratelimit"]


def test_writes_are_counted_apart_from_reads(client: TestClient) -> None:
    key = key_header(client)

    writes = [client.post("/v1/jobs/estimate", json={}, headers=key) for _ in range(2)]
    read = client.get("/v1/jobs", headers=key)

    assert [answer.status_code for answer in writes] == [422, 429]
    assert writes[0].headers["ratelimit-policy"] == '"write";q=1;w=60'
    assert read.status_code == 200


def test_keys_are_counted_apart(client: TestClient) -> None:
    busy, idle = key_header(client), key_header(client)
    for _ in range(4):
        client.get("/v1/jobs", headers=busy)

    assert client.get("/v1/jobs", headers=idle).status_code == 200


def test_service_without_keys_has_no_limit(sqlite_settings: Settings) -> None:
    settings = sqlite_settings.model_copy(update={"auth_mode": "disabled", "rate_limit_read": 1})
    app = create_app(settings, maintenance=False)
    with TestClient(app, base_url="http://localhost") as client:
        ensure_default_project(client.app_state["runtime"].context.database)
        answers = [client.get("/v1/jobs") for _ in range(3)]

    assert {answer.status_code for answer in answers} == {200}
    assert "ratelimit" not in answers[0].headers


def test_processes_on_one_redis_count_together(redis_server: RedisAddress) -> None:
    clock, key_id = HeldClock(), uuid4()
    first, second = limiter(clock, redis_server.url), limiter(clock, redis_server.url)

    first.admit(key_id, "GET")
    second.admit(key_id, "GET")

    with pytest.raises(RateLimited):
        first.admit(key_id, "GET")
    first.close()
    second.close()


def test_processes_without_redis_count_alone() -> None:
    clock, key_id = HeldClock(), uuid4()
    first, second = limiter(clock), limiter(clock)

    admit_all(first, key_id)

    assert second.admit(key_id, "GET")


def test_without_redis_the_process_counts_by_itself_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = CapturingLogger()
    monkeypatch.setattr("app.api.rate_limits.logger", log)
    clock, key_id = HeldClock(), uuid4()
    alone = limiter(clock, f"redis://127.0.0.1:{reserve_ports(1)[0]}/0")

    admit_all(alone, key_id)
    clock.seconds += PAUSE_S
    with pytest.raises(RateLimited):
        alone.admit(key_id, "GET")

    assert [call.args for call in log.calls] == [("rate_limits_not_shared",)]


def test_silent_redis_is_asked_once_in_a_pause() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)
        clock, key_id = HeldClock(), uuid4()
        alone = limiter(clock, f"redis://127.0.0.1:{silent.getsockname()[1]}/0")

        admit_all(alone, key_id)

        silent.accept()
        with pytest.raises(BlockingIOError):
            silent.accept()


@pytest.mark.parametrize("url", ["amqp://127.0.0.1/", "sentinel://127.0.0.1:1;127.0.0.1:2", None])
def test_broker_that_is_no_single_redis_leaves_counting_to_the_process(url: str | None) -> None:
    alone = limiter(HeldClock(), url)

    assert alone.admit(uuid4(), "POST")["RateLimit-Policy"] == '"write";q=1;w=60'


def admit_all(counter: RateLimiter, key_id: UUID) -> None:
    """Use up the two reads of the minute."""
    counter.admit(key_id, "GET")
    counter.admit(key_id, "HEAD")


def test_a_clock_that_is_set_back_does_not_shut_a_key_out(monkeypatch: pytest.MonkeyPatch) -> None:
    limited, key = limiter(HeldClock()), uuid4()
    real = time.time
    with monkeypatch.context() as ahead:
        ahead.setattr(time, "time", lambda: real() + 7200)
        limited.admit(key, "POST")

    assert limited.admit(key, "POST")

    with pytest.raises(RateLimited) as refused:
        limited.admit(key, "POST")
    assert refused.value.retry_after_s is not None
    assert refused.value.retry_after_s <= 60
