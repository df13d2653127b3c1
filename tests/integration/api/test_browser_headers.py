"""What browsers are told, and what a page of a stranger can do with a service it reaches."""

from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest
from pydantic import AnyHttpUrl, ValidationError
from starlette.testclient import TestClient

from app.api.security_headers import CONTENT_POLICY, LOOPBACK_NAMES
from app.main import create_app
from app.settings import Settings
from tests.integration.api.callers import JOB, Caller
from tests.integration.api.conftest import run_app
from tests.integration.api.live_server import LiveServer
from tests.integration.api.runs import finished_job

UI = "https://ui.example.org"
HOSTILE = b"<script>alert(1)</script><svg onload=alert(1)>"
on_sqlite = pytest.mark.parametrize("app", ["sqlite"], indirect=True)


def started(settings: Settings, **changes: object) -> Iterator[TestClient]:
    values = {**settings.model_dump(), **changes}
    app = create_app(Settings(_env_file=None, **values), maintenance=False)
    with TestClient(app, base_url="http://localhost") as client:
        yield client


@pytest.fixture
def https_client(sqlite_settings: Settings) -> Iterator[TestClient]:
    yield from started(sqlite_settings, public_url="https://api.example.org/fair", cors_origins=UI)


@pytest.fixture
def open_client(sqlite_settings: Settings) -> Iterator[TestClient]:
    yield from started(sqlite_settings, auth_mode="disabled")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/livez", 200),
        ("GET", "/version", 200),
        ("GET", "/v1/me", 200),
        ("GET", "/v1/jobs/job_1", 404),
        ("GET", "/nowhere", 404),
        ("PUT", "/v1/jobs", 405),
        ("POST", "/v1/jobs", 422),
        ("GET", "/openapi.json", 200),
        ("GET", "/docs", 200),
        ("GET", "/docs/start.js", 200),
        ("GET", "/docs/assets/swagger-ui.css", 200),
        ("GET", "/problems/not_found", 200),
    ],
)
@on_sqlite
def test_every_answer_tells_browsers_to_do_nothing_with_it(
    caller: Caller, method: str, path: str, status: int
) -> None:
    answer = caller.request(method, path)

    assert answer.status_code == status
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "script-src 'unsafe-inline'" not in policy
    if path.startswith("/v1"):
        assert answer.headers["cache-control"] in ("no-store", "private, no-cache")
        assert policy == CONTENT_POLICY


@on_sqlite
def test_new_key_is_kept_by_no_cache(caller: Caller) -> None:
    answer = caller.post("/v1/api-keys", json={"name": "x", "scopes": ["jobs:read"]})

    assert answer.status_code == 201, answer.text
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("name", ["report.html", "plots/a.svg"])
@on_sqlite
def test_what_a_job_wrote_runs_nothing_in_a_browser(caller: Caller, name: str) -> None:
    job_id = finished_job(caller, {name: HOSTILE})
    artifact = caller.get(f"/v1/jobs/{job_id}/artifacts").json()["data"][0]

    answers = [caller.get(artifact["content"])]
    if name == "report.html":
        answers.append(caller.get(f"/v1/jobs/{job_id}/report", headers={"Accept": "text/html"}))

    for answer in answers:
        assert answer.content == HOSTILE
        assert answer.headers["x-content-type-options"] == "nosniff"
        directives = [part.split() for part in answer.headers["content-security-policy"].split(";")]
        assert ["sandbox"] in directives
    assert answers[0].headers["content-disposition"].startswith("attachment;")


def test_transport_security_is_told_only_behind_https(
    https_client: TestClient, open_client: TestClient
) -> None:
    assert "max-age=" in https_client.get("/livez").headers["strict-transport-security"]
    assert "strict-transport-security" not in open_client.get("/livez").headers


def test_pages_of_other_origins_may_read_nothing(open_client: TestClient) -> None:
    answer = open_client.get("/livez", headers={"Origin": UI})
    preflight = open_client.options(
        "/v1/jobs", headers={"Origin": UI, "Access-Control-Request-Method": "POST"}
    )

    assert "access-control-allow-origin" not in answer.headers
    assert "access-control-allow-origin" not in preflight.headers
    assert preflight.status_code == 405


def test_listed_origin_may_read_and_another_may_not(https_client: TestClient) -> None:
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "range"}

    allowed = https_client.get("/livez", headers={"Origin": UI})
    preflight = https_client.options("/v1/jobs", headers={"Origin": UI, **asked})
    refused = https_client.get("/livez", headers={"Origin": "https://evil.example.org"})

    assert allowed.headers["access-control-allow-origin"] == UI
    assert "access-control-allow-credentials" not in allowed.headers
    assert preflight.status_code == 200
    assert "access-control-allow-origin" not in refused.headers


@pytest.mark.parametrize("origin", ["*", "ui.example.org", "https://a/b", "null", "https://*.a"])
def test_setting_of_origins_takes_origins_only(origin: str) -> None:
    with pytest.raises(ValidationError, match="is no origin"):
        Settings(_env_file=None, cors_origins=origin)


@pytest.mark.parametrize("host", [*sorted(LOOPBACK_NAMES - {"::1"}), "[::1]", "LOCALHOST:8000"])
def test_service_without_keys_answers_on_loopback_names(open_client: TestClient, host: str) -> None:
    assert open_client.get("/livez", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example.org", "localhost.evil.example.org", "127.0.0.1.nip.io", "a@localhost:1@b", "["],
)
@pytest.mark.parametrize("path", ["/v1/jobs", "/livez", "/docs", "/nowhere"])
def test_service_without_keys_answers_to_no_other_name(
    open_client: TestClient, host: str, path: str
) -> None:
    answer = open_client.get(path, headers={"Host": host})

    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
    assert "DEBIAS_PUBLIC_URL" in answer.json()["detail"]


@pytest.mark.parametrize("host", ["evil.example.org", "evil.example.org:80", "x/../y"])
def test_links_come_from_the_public_url(
    sqlite_settings: Settings, https_client: TestClient, host: str
) -> None:
    with run_app(sqlite_settings.model_copy(update={"public_url": AnyHttpUrl(UI)})) as running:
        caller = running.caller()
        job_id = finished_job(caller, {"report.json": b"{}"})
        artifact = caller.get(f"/v1/jobs/{job_id}/artifacts").json()["data"][0]["id"]
        forged = {"Host": host, "X-Forwarded-Host": host, "Forwarded": f"host={host}"}

        link = caller.post(f"/v1/artifacts/{artifact}/download-url", headers=forged).json()["url"]
        job = caller.get(f"/v1/jobs/{job_id}", headers=forged)

    assert link.startswith(f"{UI}/downloads/")
    assert host not in job.text
    assert https_client.get("/livez", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("trusted", [(), ("192.0.2.1",)])
@on_sqlite
def test_forwarded_headers_of_strangers_change_nothing(
    caller: Caller, trusted: tuple[str, ...]
) -> None:
    settings = caller.app.settings.model_copy(update={"trusted_proxies": trusted})
    server = LiveServer(replace(caller, app=replace(caller.app, settings=settings)))
    url = server.start()
    job_id = finished_job(caller, {"report.json": b"{}"})
    artifact = caller.get(f"/v1/jobs/{job_id}/artifacts").json()["data"][0]["id"]
    forged = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https"}

    answer = httpx.post(
        f"{url}/v1/artifacts/{artifact}/download-url",
        headers={"Authorization": f"Bearer {caller.key}", **forged},
    )
    server.stop()

    assert answer.json()["url"].startswith(f"{url}/")


@on_sqlite
def test_trusted_proxy_tells_the_scheme(caller: Caller) -> None:
    settings = caller.app.settings.model_copy(update={"trusted_proxies": ("127.0.0.1",)})
    server = LiveServer(replace(caller, app=replace(caller.app, settings=settings)))
    url = server.start()
    job_id = finished_job(caller, {"report.json": b"{}"})
    artifact = caller.get(f"/v1/jobs/{job_id}/artifacts").json()["data"][0]["id"]

    answer = httpx.post(
        f"{url}/v1/artifacts/{artifact}/download-url",
        headers={"Authorization": f"Bearer {caller.key}", "X-Forwarded-Proto": "https"},
    )
    server.stop()

    assert answer.json()["url"].startswith("https://")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded"])
@on_sqlite
def test_form_of_a_page_creates_no_job(caller: Caller, kind: str) -> None:
    answer = caller.post("/v1/jobs", content=str(JOB).encode(), headers={"Content-Type": kind})

    assert answer.status_code == 415
