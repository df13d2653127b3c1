"""How the client of the API sends requests, reports problems and tries again."""

import json
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from debias_client import (
    ApiError,
    Client,
    ConnectionFailed,
    FieldError,
    RetryPolicy,
    UnexpectedAnswer,
)
from debias_client.retries import parse_retry_after
from tests.scripted_service import FakeTime, ScriptedService, json_answer, page, problem

JOB: Any = {"id": "job_1", "status": "queued"}


def keys_sent(service: ScriptedService) -> list[str]:
    return [request.headers["Idempotency-Key"] for request in service.requests]


def test_create_posts_the_spec_and_gives_the_job() -> None:
    service = ScriptedService([json_answer(JOB, 202)])
    spec = {"kind": "debias", "config": {"fraction": 0.01}}

    job = service.client().jobs.create(spec)

    assert job == JOB
    (request,) = service.requests
    assert (request.method, request.url.path) == ("POST", "/v1/jobs")
    assert json.loads(request.content) == spec


def test_create_sends_one_key_for_all_its_attempts() -> None:
    service = ScriptedService([httpx.ReadError("lost"), problem(502, "x"), json_answer(JOB, 202)])

    service.client().jobs.create({})

    assert len(keys_sent(service)) == 3
    assert len(set(keys_sent(service))) == 1


def test_two_creates_have_different_keys() -> None:
    service = ScriptedService([json_answer(JOB, 202), json_answer(JOB, 202)])
    client = service.client()

    client.jobs.create({})
    client.jobs.create({})

    assert len(set(keys_sent(service))) == 2


def test_create_sends_the_key_it_is_given() -> None:
    service = ScriptedService([json_answer(JOB, 202)])

    service.client().jobs.create({}, idempotency_key="nightly-17")

    assert keys_sent(service) == ["nightly-17"]


def test_the_api_key_is_sent_as_a_bearer_token() -> None:
    service = ScriptedService([json_answer(JOB)])

    service.client(api_key="dbk_secret").jobs.get("job_1")

    assert service.requests[0].headers["Authorization"] == "Bearer dbk_secret"


def test_without_an_api_key_no_authorization_is_sent() -> None:
    service = ScriptedService([json_answer(JOB)])

    service.client().jobs.get("job_1")

    assert "Authorization" not in service.requests[0].headers


def test_a_base_url_may_have_a_path() -> None:
    service = ScriptedService([json_answer(JOB)])
    transport = httpx.MockTransport(service.answer)

    Client("http://service.test/evenhand/", transport=transport).jobs.get("job_1")

    assert service.requests[0].url.path == "/evenhand/v1/jobs/job_1"


def test_an_id_cannot_reach_another_route() -> None:
    service = ScriptedService([json_answer(JOB)])

    service.client().jobs.get("job_1/cancel?x=1")

    assert service.requests[0].url.raw_path == b"/v1/jobs/job_1%2Fcancel%3Fx%3D1"


def test_a_problem_document_becomes_an_api_error() -> None:
    body = {
        "code": "config_invalid",
        "detail": "1 field is wrong",
        "request_id": "req-9",
        "errors": [
            {"pointer": "/config/fraction", "code": "too_small", "message": "use more than 0"},
            {"parameter": "limit", "in": "query", "code": "range", "message": "at most 100"},
        ],
    }
    service = ScriptedService([json_answer(body, 422)])

    with pytest.raises(ApiError) as raised:
        service.client().jobs.create({})

    error = raised.value
    assert (error.code, error.status) == ("config_invalid", 422)
    assert (error.detail, error.request_id) == ("1 field is wrong", "req-9")
    assert error.errors == (
        FieldError("too_small", "use more than 0", pointer="/config/fraction"),
        FieldError("range", "at most 100", parameter="limit"),
    )


def test_the_message_of_an_api_error_names_field_and_request() -> None:
    body = {
        "code": "config_invalid",
        "detail": "1 field is wrong",
        "errors": [{"pointer": "/config/fraction", "code": "x", "message": "use more than 0"}],
    }
    service = ScriptedService([json_answer(body, 422, X_Request_Id="req-9")])

    with pytest.raises(ApiError) as raised:
        service.client().jobs.create({})

    assert str(raised.value) == (
        "config_invalid (422): 1 field is wrong [request req-9]\n/config/fraction: use more than 0"
    )


def test_an_error_page_of_a_proxy_becomes_an_api_error() -> None:
    service = ScriptedService([httpx.Response(403, html="<h1>Forbidden</h1>")])

    with pytest.raises(ApiError) as raised:
        service.client().jobs.get("job_1")

    assert (raised.value.code, raised.value.status) == ("http_error", 403)
    assert raised.value.detail == "Forbidden"


@pytest.mark.parametrize("body", [b"<html>", b"\xff", b"[1]", b'"text"'])
def test_a_success_that_is_no_json_object_is_refused(body: bytes) -> None:
    service = ScriptedService([httpx.Response(200, content=body)])

    with pytest.raises(UnexpectedAnswer):
        service.client().jobs.get("job_1")


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_read_is_tried_again_after_a_transient_status(status: int) -> None:
    service = ScriptedService([problem(status, "unavailable"), json_answer(JOB)])

    assert service.client().jobs.get("job_1") == JOB


@pytest.mark.parametrize(
    "failure",
    [
        httpx.ConnectError("refused"),
        httpx.ConnectTimeout("slow"),
        httpx.ReadTimeout("slow"),
        httpx.ReadError("reset"),
        httpx.RemoteProtocolError("closed before an answer"),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_a_read_is_tried_again_after_a_lost_connection(failure: Exception) -> None:
    service = ScriptedService([failure, json_answer(JOB)])

    assert service.client().jobs.get("job_1") == JOB


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 422, 500])
def test_other_statuses_are_reported_at_once(status: int) -> None:
    service = ScriptedService([problem(status, "some_code")])

    with pytest.raises(ApiError):
        service.client().jobs.get("job_1")

    assert service.time.slept_s == []


@pytest.mark.parametrize("answer", [problem(503, "unavailable"), httpx.ReadError("lost")])
def test_retry_of_a_job_is_sent_once_only(answer: httpx.Response | Exception) -> None:
    service = ScriptedService([answer])

    with pytest.raises((ApiError, ConnectionFailed)):
        service.client().jobs.retry("job_1")

    assert len(service.requests) == 1


def test_cancel_is_tried_again_because_it_may_be_repeated() -> None:
    cancelled: Any = {"id": "job_1", "status": "cancelled"}
    service = ScriptedService([httpx.ReadError("lost"), json_answer(cancelled)])

    assert service.client().jobs.cancel("job_1", keep_checkpoint=True) == cancelled
    assert service.requests[1].url.path == "/v1/jobs/job_1/cancel"
    assert json.loads(service.requests[1].content) == {"keep_checkpoint": True}


@pytest.mark.parametrize("action", ["pause", "resume"])
def test_pause_and_resume_are_tried_again_because_they_may_be_repeated(action: str) -> None:
    service = ScriptedService([httpx.ReadError("lost"), json_answer(JOB, 202)])

    getattr(service.client().jobs, action)("job_1")

    assert service.requests[1].url.path == f"/v1/jobs/job_1/{action}"


def test_retry_of_a_job_says_where_to_start() -> None:
    service = ScriptedService([json_answer(JOB, 202)])

    service.client().jobs.retry("job_1", start_from="start")

    assert service.requests[0].url.path == "/v1/jobs/job_1/retry"
    assert json.loads(service.requests[0].content) == {"from": "start"}


def test_waits_double_up_to_a_cap() -> None:
    service = ScriptedService([httpx.ConnectError("refused")] * 6 + [json_answer(JOB)])
    policy = RetryPolicy(max_attempts=7, base_s=1, cap_s=6)

    service.client(retry=policy).jobs.get("job_1")

    assert service.time.slept_s == [1, 2, 4, 6, 6, 6]


def test_jitter_shortens_a_wait_but_not_below_what_was_asked() -> None:
    error = ApiError("unavailable", 503, detail="", retry_after_s=3)
    policy = RetryPolicy(base_s=8, cap_s=8)

    assert policy.delay_s(error, 1, jitter=lambda: 0.5) == 4
    assert policy.delay_s(error, 1, jitter=lambda: 0.0) == 3


def test_retry_after_is_honoured() -> None:
    service = ScriptedService([problem(503, "queue_full", retry_after="17"), json_answer(JOB)])

    service.client().jobs.create({})

    assert service.time.slept_s == [17]


def test_a_retry_after_beyond_the_limit_is_reported_with_its_value() -> None:
    service = ScriptedService([problem(429, "rate_limited", retry_after="3600")])

    with pytest.raises(ApiError) as raised:
        service.client().jobs.get("job_1")

    assert raised.value.retry_after_s == 3600
    assert service.time.slept_s == []


def test_a_used_up_quota_without_retry_after_is_reported_at_once() -> None:
    service = ScriptedService([problem(429, "quota_exceeded")])

    with pytest.raises(ApiError, match="quota_exceeded"):
        service.client().jobs.create({})


def test_the_last_failure_is_reported_when_attempts_run_out() -> None:
    service = ScriptedService([httpx.ConnectError("refused")] * 2 + [problem(503, "unavailable")])

    with pytest.raises(ApiError, match="unavailable"):
        service.client(retry=RetryPolicy(max_attempts=3)).jobs.get("job_1")


def test_a_lost_connection_is_reported_with_its_cause() -> None:
    service = ScriptedService([httpx.ConnectError("refused")])

    with pytest.raises(ConnectionFailed, match="GET /v1/jobs/job_1: refused") as raised:
        service.client(retry=RetryPolicy(max_attempts=1)).jobs.get("job_1")

    assert isinstance(raised.value.__cause__, httpx.ConnectError)


def test_a_url_that_no_repetition_can_mend_is_not_tried_again() -> None:
    fake = FakeTime()

    with pytest.raises(httpx.UnsupportedProtocol):
        Client("service.test", clock=fake.clock()).jobs.get("job_1")

    assert fake.slept_s == []


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("0", 0.0),
        ("120", 120.0),
        ("Wed, 01 Jan 2025 00:01:00 GMT", 60.0),
        ("Wed, 01 Jan 2025 00:01:00 -0000", 60.0),
        ("Tue, 31 Dec 2024 23:59:00 GMT", 0.0),
        ("soon", None),
        ("-5", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(
    value: str | None, seconds: float | None
) -> None:
    now = datetime(2025, 1, 1, tzinfo=UTC)

    assert parse_retry_after(value, now=lambda: now) == seconds


def test_list_follows_the_cursor_and_keeps_the_filters() -> None:
    first: Any = {"id": "job_2", "status": "failed"}
    second: Any = {"id": "job_1", "status": "failed"}
    service = ScriptedService([page(first, next_cursor="c1"), page(second)])

    jobs = list(service.client().jobs.list(status=["failed"], label={"team": "nlp"}, page_size=1))

    assert jobs == [first, second]
    queries = [request.url.params for request in service.requests]
    assert queries[0].multi_items() == [("limit", "1"), ("status", "failed"), ("label", "team:nlp")]
    assert queries[1].multi_items() == [*queries[0].multi_items(), ("cursor", "c1")]


def test_list_repeats_a_filter_of_several_values() -> None:
    service = ScriptedService([page()])

    list(service.client().jobs.list(status=["queued", "running"], method=["fairness_pruning"]))

    query = service.requests[0].url.params
    assert query.get_list("status") == ["queued", "running"]
    assert query.get_list("method") == ["fairness_pruning"]


def test_list_reads_the_next_page_only_when_it_is_reached() -> None:
    service = ScriptedService([page({"id": "job_2", "status": "failed"}, next_cursor="c1")])

    next(service.client().jobs.list())

    assert len(service.requests) == 1


def test_methods_are_listed_and_read_by_name() -> None:
    method: Any = {"name": "fairness_pruning", "version": "1.0.0"}
    service = ScriptedService([page(method), json_answer({**method, "config_schema": {}})])
    client = service.client()

    assert client.methods.list() == (method,)
    assert client.methods.get("fairness_pruning")["config_schema"] == {}
    assert [r.url.path for r in service.requests] == [
        "/v1/methods",
        "/v1/methods/fairness_pruning",
    ]


def test_me_gives_the_scopes() -> None:
    service = ScriptedService([json_answer({"scopes": ["jobs:read"]})])

    assert service.client().me()["scopes"] == ["jobs:read"]


def test_a_closed_client_sends_nothing() -> None:
    service = ScriptedService([])

    with service.client() as client:
        pass

    with pytest.raises(RuntimeError, match="closed"):
        client.jobs.get("job_1")
