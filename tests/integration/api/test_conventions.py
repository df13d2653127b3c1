"""What holds for every answer: headers, problem pages, health, and outages."""

import asyncio
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy.orm import Session
from starlette.testclient import TestClient

from app.api.openapi import api_routes
from app.api.problems import all_problems
from app.db import session
from app.db.repositories.projects import count_waiting_of_all
from app.db.schema import head_revision
from app.db.session import Database
from app.domain.errors import Unavailable
from app.domain.ids import IdPrefix, format_id
from app.main import create_app
from app.security.scopes import GRANTABLE
from app.services import quotas
from app.services.quotas import SAFE_DISTANCE
from app.settings import Settings
from tests.fixtures.database import make_project
from tests.integration.api.callers import JOB, Caller, make_key
from tests.integration.api.runs import finished_job

JSON = {"Content-Type": "application/json"}
UNKNOWN_JOB = "job_01m2a5mqf0e0xbzqz2r9m8j4nd"


def test_problem_has_all_members_of_rfc_9457(caller: Caller) -> None:
    problem = caller.get("/v1/jobs/job_1").json()

    assert problem["type"] == "/problems/not_found"
    assert problem["title"] == "Not found"
    assert problem["status"] == 404
    assert problem["instance"] == "/v1/jobs/job_1"
    assert problem.keys() == {"type", "title", "status", "detail", "instance", "code", "request_id"}


@pytest.mark.parametrize("code", sorted(all_problems()))
def test_every_problem_code_has_a_page(caller: Caller, code: str) -> None:
    page = caller.app.client.get(f"/problems/{code}", headers={"Accept": "text/html"})
    data = caller.app.client.get(f"/problems/{code}", headers={"Accept": "application/json"})

    assert code in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert data.json()["status"] == all_problems()[code].status


def test_every_get_also_answers_head(caller: Caller) -> None:
    job_id = finished_job(caller, {"report.json": b"{}", "report.html": b"<p>"})
    artifact_id = caller.get(f"/v1/jobs/{job_id}/artifacts").json()["data"][0]["id"]
    key_id = caller.get("/v1/me").json()["key"]["id"]
    ids = {"job_id": job_id, "artifact_id": artifact_id, "key_id": key_id}
    ids |= {"name": "fake", "code": "not_found"}
    ids["project_id"] = format_id(IdPrefix.PROJECT, caller.project_id)
    varying = {"x-request-id", "content-length"}
    of_this_moment = {"/metrics", "/v1/admin/queues"}  # ages, which grow by a digit now and then

    for route in api_routes(caller.app.fastapi):
        if "GET" not in (route.methods or ()) or route.path.startswith("/downloads"):
            continue
        if route.path == "/v1/benchmarks/{name}":
            continue  # there is none to read
        path = route.path.format(**ids)
        full, head = caller.get(path), caller.request("HEAD", path)
        assert head.status_code == full.status_code == 200, path
        assert head.content == b"", path
        if route.path not in of_this_moment:
            assert head.headers.get("content-length") == full.headers.get("content-length"), path
        assert head.headers.keys() - varying == full.headers.keys() - varying, path


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/jobs", "GET, HEAD, POST"),
        ("/v1/jobs/job_1", "DELETE, GET, HEAD, PATCH"),
        ("/v1/jobs/job_1/cancel", "POST"),
        ("/v1/jobs/estimate", "POST"),
        ("/v1/jobs/summary", "GET, HEAD"),
        ("/openapi.json", "GET, HEAD"),
    ],
)
def test_wrong_method_is_told_all_the_right_ones(caller: Caller, path: str, allowed: str) -> None:
    answer = caller.request("PUT", path)

    assert answer.status_code == 405
    assert answer.headers["allow"] == allowed
    assert allowed in answer.json()["detail"]


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/v1/jobs/estimate"), ("DELETE", "/v1/jobs/estimate"), ("PATCH", "/v1/jobs/summary")],
)
def test_path_of_its_own_is_not_taken_for_an_id(caller: Caller, method: str, path: str) -> None:
    answer = caller.request(method, path)

    assert answer.status_code == 405
    assert answer.headers["allow"] in ("POST", "GET, HEAD")


@pytest.mark.parametrize("path", ["cancel", "retry"])
def test_body_that_is_null_is_none(caller: Caller, path: str) -> None:
    answer = caller.post(f"/v1/jobs/{UNKNOWN_JOB}/{path}", content=b" null ", headers=JSON)

    assert answer.status_code == 404


def test_schema_has_an_identity_and_a_tag(caller: Caller) -> None:
    path = "/v1/methods/fake/schema"
    first = caller.get(path)

    again = caller.get(path, headers={"If-None-Match": first.headers["etag"]})

    assert first.json()["$id"].endswith("/v1/methods/fake/schema?version=1.0.0")
    assert first.json()["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert again.status_code == 304


def test_catalogue_shows_methods_with_schema_and_example(caller: Caller) -> None:
    listed = [method["name"] for method in caller.get("/v1/methods").json()["data"]]
    method = caller.get("/v1/methods/fairness_pruning").json()

    assert listed == sorted(listed)
    assert {"fake", "fairness_pruning"} <= set(listed)
    assert method["config_schema"]["additionalProperties"] is False
    assert method["metrics"]
    assert method["example_config"]
    assert caller.get("/v1/benchmarks").json() == {"data": []}


def test_unknown_benchmark_is_refused_with_those_there_are(caller: Caller) -> None:
    body = {**JOB, "evaluation": {"benchmarks": [{"name": "stereoset"}]}}

    created = caller.post("/v1/jobs", json=body)
    read = caller.get("/v1/benchmarks/stereoset")

    assert (created.status_code, read.status_code) == (422, 404)
    finding = created.json()["errors"][0]
    assert finding["pointer"] == "/evaluation/benchmarks/0/name"
    assert finding["code"] == "unknown_benchmark"
    assert "This service has none" in finding["message"]
    assert "This service has none" in read.json()["detail"]


def test_unknown_method_gets_a_suggestion(caller: Caller) -> None:
    answer = caller.get("/v1/methods/fairness-pruning")

    assert answer.status_code == 404
    assert "Did you mean 'fairness_pruning'?" in answer.json()["detail"]


def test_health_needs_no_key(caller: Caller) -> None:
    client = caller.app.client

    assert client.get("/livez").json() == {"status": "alive"}
    assert client.get("/version").json()["database_schema"] == head_revision()
    ready = client.get("/readyz")
    assert (ready.status_code, ready.json()["status"]) == (200, "ready")


def test_metrics_name_routes_by_template_and_state_by_rows(caller: Caller) -> None:
    job_id = finished_job(caller)
    caller.get(f"/v1/jobs/{job_id}")

    text = caller.app.client.get("/metrics").text

    assert 'route="/v1/jobs/{job_id}",status="200"' in text
    assert job_id not in text
    assert 'debias_jobs{device_class="cpu",status="succeeded"}' in text.replace(
        'status="succeeded",device_class="cpu"', 'device_class="cpu",status="succeeded"'
    )
    assert 'debias_attempts_total{outcome="succeeded"}' in text
    assert "debias_outbox_pending" in text
    assert "debias_queue_oldest_age_seconds" in text


def test_defect_shows_the_request_id_and_nothing_else(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("app.api.routes.methods.get_method", fail)

    answer = caller.get("/v1/methods/fake", headers={"X-Request-Id": "defect-1"})

    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert answer.json()["request_id"] == answer.headers["x-request-id"] == "defect-1"
    assert "secret detail" not in answer.text
    assert "secret detail" in caplog.text


def test_client_that_leaves_while_sending_is_no_defect(
    caller: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[object] = []
    messages = iter([{"type": "http.request", "body": b"{", "more_body": True}])

    async def receive() -> dict[str, object]:
        return next(messages, {"type": "http.disconnect"})

    async def send(message: object) -> None:
        sent.append(message)

    scope = {"type": "http", "http_version": "1.1", "method": "POST", "path": "/v1/jobs"}
    scope |= {"headers": [(b"host", b"testserver")], "state": {}}
    asyncio.run(caller.app.fastapi(scope, receive, send))

    assert sent == []
    assert "request_failed" not in caplog.text


def test_absent_hub_is_answered_503(sqlite_settings: Settings) -> None:
    settings = sqlite_settings.model_copy(update={"hub_endpoint": "http://127.0.0.1:9"})
    with TestClient(create_app(settings, maintenance=False)) as client:
        key = key_of_new_project(client.app_state["runtime"].context.database)
        headers = {"Authorization": f"Bearer {key}"}
        body = {**JOB, "model": {"hub": "org/model"}}
        created = client.post("/v1/jobs", json=body, headers=headers)
        estimated = client.post("/v1/jobs/estimate", json=body, headers=headers)

    assert {created.status_code, estimated.status_code} == {503}
    assert created.json()["code"] == "unavailable"
    assert int(created.headers["retry-after"]) > 0


def test_database_with_another_schema_is_refused_at_start(tmp_path: Path) -> None:
    settings = Settings(_env_file=None, home=tmp_path)

    with (
        pytest.raises(Unavailable, match="debias db upgrade"),
        TestClient(create_app(settings, maintenance=False)),
    ):
        pass


def test_database_that_is_gone_is_answered_503(sqlite_settings: Settings, tmp_path: Path) -> None:
    with TestClient(create_app(sqlite_settings, maintenance=False)) as client:
        runtime = client.app_state["runtime"]
        runtime.context.database.dispose()
        for path in tmp_path.glob("debias.db*"):
            path.unlink()
        tmp_path.joinpath("debias.db").mkdir()

        answer = client.get("/v1/jobs", headers={"Authorization": "Bearer x"})
        ready = client.get("/readyz")

    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert int(answer.headers["retry-after"]) > 0
    assert "sqlite" not in answer.text.lower()
    assert ready.status_code == 503
    assert ready.json()["database"] is False


def test_request_that_gets_no_connection_is_answered_503(
    sqlite_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "POOL_SIZE", 2)
    monkeypatch.setattr(session, "POOL_TIMEOUT_S", 0.5)
    with TestClient(create_app(sqlite_settings, maintenance=False)) as client, ExitStack() as held:
        engine = client.app_state["runtime"].context.database.engine
        for _ in range(4):  # the pool, and as many on top
            held.enter_context(engine.connect())

        answer = client.get("/v1/jobs", headers={"Authorization": "Bearer x"})
        held.close()
        later = client.get("/v1/jobs", headers={"Authorization": "Bearer x"})

    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert int(answer.headers["retry-after"]) > 0
    assert later.status_code == 401


def test_store_that_cannot_be_written_makes_the_service_unready(
    sqlite_settings: Settings, tmp_path: Path
) -> None:
    with TestClient(create_app(sqlite_settings, maintenance=False)) as client:
        shutil.rmtree(tmp_path / "objects")
        (tmp_path / "objects").write_text("a file where the folder was")
        runtime = client.app_state["runtime"]
        runtime.readiness.run_once()

        assert client.get("/readyz").json()["store"] is False


def test_total_of_waiting_jobs_is_bounded(sqlite_settings: Settings) -> None:
    settings = sqlite_settings.model_copy(update={"max_queued_total": 1})
    with TestClient(create_app(settings, maintenance=False)) as client:
        database: Database = client.app_state["runtime"].context.database
        key = key_of_new_project(database)
        headers = {"Authorization": f"Bearer {key}"}
        client.post("/v1/jobs", json=JOB, headers=headers)

        answer = client.post("/v1/jobs", json=JOB, headers=headers)

    assert (answer.status_code, answer.json()["code"]) == (503, "queue_full")
    assert int(answer.headers["retry-after"]) > 0


def key_of_new_project(database: Database) -> str:
    return make_key(database, make_project(database), sorted(GRANTABLE))


def test_filter_of_several_values_may_be_repeated(caller: Caller) -> None:
    assert caller.get("/v1/jobs?status=queued&status=running").status_code == 200


@pytest.mark.parametrize(("limit", "counts"), [(SAFE_DISTANCE, 3), (SAFE_DISTANCE + 10, 1)])
def test_waiting_jobs_of_all_are_counted_for_each_job_only_near_the_limit(
    sqlite_settings: Settings, monkeypatch: pytest.MonkeyPatch, limit: int, counts: int
) -> None:
    asked: list[Session] = []

    def count(session: Session) -> int:
        asked.append(session)
        return count_waiting_of_all(session)

    monkeypatch.setattr(quotas, "count_waiting_of_all", count)
    monkeypatch.setattr(quotas, "COUNT_BELIEVED_S", 3600.0)
    settings = sqlite_settings.model_copy(update={"max_queued_total": limit})
    with TestClient(create_app(settings, maintenance=False)) as client:
        key = key_of_new_project(client.app_state["runtime"].context.database)
        for _ in range(3):
            answer = client.post("/v1/jobs", json=JOB, headers={"Authorization": f"Bearer {key}"})
            assert answer.status_code == 202

    assert len(asked) == counts
