"""Jobs over HTTP: create, read, list, change, cancel, try again, delete."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import sqlalchemy as sa

from app.db.tables import IdempotencyKey, Job, JobEvent, OutboxMessage
from app.security.scopes import Scope
from tests.integration.api.callers import JOB, Caller, RunningApp, job_uuid
from tests.integration.api.runs import (
    failed_job,
    finished_job,
    start,
)


def count(app: RunningApp, statement: sa.Select[int]) -> int:
    with app.database.read() as session:
        return session.execute(statement).scalar_one()


def jobs_of(caller: Caller) -> int:
    statement = sa.select(sa.func.count()).select_from(Job)
    return count(caller.app, statement.where(Job.project_id == caller.project_id))


def test_created_job_is_queued_with_everything_written_out(caller: Caller) -> None:
    answer = caller.post("/v1/jobs", json={**JOB, "name": "first", "labels": {"team": "nlp"}})

    body = answer.json()
    assert answer.status_code == 202
    assert answer.headers["location"] == f"/v1/jobs/{body['id']}"
    assert answer.headers["retry-after"] == "2"
    assert body["status"] == "queued"
    assert body["method_version"] == "1.0.0"
    assert body["config"]["steps"] == 3
    assert body["model"] == {"type": "path", "name": "tiny"}
    assert body["queue"] == {"class": "cpu", "position": 1}
    assert body["labels"] == {"team": "nlp"}
    assert body["created_at"].endswith("Z")
    assert len(body["created_at"]) == len("2026-01-31T12:00:00.000Z")
    assert body["links"]["events"] == f"/v1/jobs/{body['id']}/events"


def test_creation_writes_events_and_dispatch_message(caller: Caller) -> None:
    job_id = job_uuid(caller.create_job()["id"])

    with caller.app.database.read() as session:
        events = session.execute(sa.select(JobEvent.type).where(JobEvent.job_id == job_id))
        topics = session.execute(
            sa.select(OutboxMessage.topic).where(OutboxMessage.aggregate_id == job_id)
        )
        assert list(events.scalars())[:2] == ["job.created", "job.queued"]
        assert list(topics.scalars()) == ["dispatch"]


def test_creation_answers_with_the_warnings_of_a_dry_run(caller: Caller) -> None:
    body = {
        "model": {"demo": "tiny-llama"},
        "method": "fairness_pruning",
        "config": {"pairs": "gender", "neurons_per_layer": 1},
    }
    told = caller.post("/v1/jobs?dry_run=true", json=body).json()["warnings"]

    job = caller.post("/v1/jobs", json=body).json()

    assert told  # 255 neurons are a multiple of nothing
    assert job["warnings"] == told
    assert caller.get(f"/v1/jobs/{job['id']}").json()["warnings"] is None


def test_request_id_reaches_the_job(caller: Caller) -> None:
    answer = caller.post("/v1/jobs", json=JOB, headers={"X-Request-Id": "trace-1"})

    with caller.app.database.read() as session:
        job = session.get_one(Job, job_uuid(answer.json()["id"]))
        assert job.created_request_id == "trace-1"
        assert answer.headers["x-request-id"] == "trace-1"


def test_request_id_that_does_not_fit_is_replaced(caller: Caller) -> None:
    answer = caller.get("/v1/me", headers={"X-Request-Id": "a b"})

    assert answer.headers["x-request-id"] != "a b"


def test_method_version_may_be_given_by_its_beginning(caller: Caller) -> None:
    assert caller.create_job(method_version="1")["method_version"] == "1.0.0"


def test_dry_run_stores_nothing(caller: Caller) -> None:
    answer = caller.post("/v1/jobs?dry_run=true", json=JOB)

    body = answer.json()
    assert answer.status_code == 200
    assert body["valid"] is True
    assert body["resolved_spec"]["config"]["steps"] == 3
    assert body["estimate"]["basis"] == "formula"
    assert body["estimate"]["disk_bytes"] > 2**30
    assert jobs_of(caller) == 0


def test_estimate_lists_what_is_wrong(caller: Caller) -> None:
    answer = caller.post("/v1/jobs/estimate", json={**JOB, "config": {"stepz": 1}})

    body = answer.json()
    assert answer.status_code == 200
    assert body["valid"] is False
    assert body["problems"][0]["pointer"] == "/config/stepz"
    assert body["resolved_spec"] is None


def test_spec_repeats_the_job_exactly(caller: Caller) -> None:
    job = caller.create_job(config={"steps": 7}, seed=5, resources={"dtype": "float32"})
    spec = caller.get(f"/v1/jobs/{job['id']}/spec")

    again = caller.post("/v1/jobs", json=spec.json())

    assert again.status_code == 202
    assert again.json()["spec_hash"] == job["spec_hash"]
    assert "attachment" in spec.headers["content-disposition"]


def test_name_does_not_change_the_spec_hash(caller: Caller) -> None:
    first, second = caller.create_job(name="a"), caller.create_job(name="b")

    assert first["spec_hash"] == second["spec_hash"]
    assert caller.create_job(seed=1)["spec_hash"] != first["spec_hash"]


class TestIdempotency:
    def test_repetition_is_answered_from_the_store(self, caller: Caller) -> None:
        headers = {"Idempotency-Key": "once"}
        first = caller.post("/v1/jobs", json=JOB, headers=headers)

        second = caller.post("/v1/jobs", json=dict(reversed(JOB.items())), headers=headers)

        assert second.status_code == 202
        assert second.json() == first.json()
        assert second.headers["location"] == first.headers["location"]
        assert second.headers["idempotency-replayed"] == "true"
        assert "idempotency-replayed" not in first.headers
        assert jobs_of(caller) == 1

    def test_another_body_is_refused(self, caller: Caller) -> None:
        headers = {"Idempotency-Key": "once"}
        caller.post("/v1/jobs", json=JOB, headers=headers)

        answer = caller.post("/v1/jobs", json={**JOB, "seed": 1}, headers=headers)

        assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")

    def test_another_route_is_refused(self, caller: Caller) -> None:
        headers = {"Idempotency-Key": "once"}
        caller.post("/v1/jobs", json=JOB, headers=headers)

        body = {"name": "k", "scopes": ["jobs:read"]}
        answer = caller.post("/v1/api-keys", json=body, headers=headers)

        assert answer.json()["code"] == "idempotency_key_reused"

    def test_keys_of_two_projects_do_not_meet(self, app: RunningApp) -> None:
        headers = {"Idempotency-Key": "once"}
        first = app.caller().post("/v1/jobs", json=JOB, headers=headers)

        second = app.caller().post("/v1/jobs", json={**JOB, "seed": 1}, headers=headers)

        assert second.status_code == 202
        assert second.json()["id"] != first.json()["id"]

    def test_refused_request_leaves_the_key_free(self, caller: Caller) -> None:
        headers = {"Idempotency-Key": "once"}
        caller.post("/v1/jobs", json={**JOB, "method": "none"}, headers=headers)

        assert caller.post("/v1/jobs", json=JOB, headers=headers).status_code == 202

    def test_expired_key_is_free_again(self, caller: Caller) -> None:
        headers = {"Idempotency-Key": "once"}
        first = caller.post("/v1/jobs", json=JOB, headers=headers)
        with caller.app.database.write() as session:
            past = caller.app.database.now(session) - timedelta(days=8)
            session.execute(
                sa.update(IdempotencyKey)
                .where(IdempotencyKey.project_id == caller.project_id)
                .values(expires_at=past)
            )

        second = caller.post("/v1/jobs", json=JOB, headers=headers)

        assert second.json()["id"] != first.json()["id"]

    def test_concurrent_first_requests_make_one_job(self, caller: Caller) -> None:
        barrier = threading.Barrier(8)

        def send(_: int) -> tuple[str, bool]:
            barrier.wait()
            answer = caller.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": "race"})
            return answer.json()["id"], "idempotency-replayed" in answer.headers

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(send, range(8)))

        assert len({job_id for job_id, _ in answers}) == 1
        assert sorted(replayed for _, replayed in answers) == [False] + [True] * 7
        assert jobs_of(caller) == 1


class TestQuotas:
    def test_project_quota(self, app: RunningApp) -> None:
        caller = app.caller(max_queued=2)
        caller.create_job()
        caller.create_job()

        answer = caller.post("/v1/jobs", json=JOB)

        assert (answer.status_code, answer.json()["code"]) == (429, "quota_exceeded")
        assert "max_queued" in answer.json()["detail"]
        assert " 2 " in answer.json()["detail"]
        assert int(answer.headers["retry-after"]) > 0

    def test_cancel_of_queued_job_frees_quota(self, app: RunningApp) -> None:
        caller = app.caller(max_queued=1)
        job = caller.create_job()
        caller.post(f"/v1/jobs/{job['id']}/cancel")

        assert caller.post("/v1/jobs", json=JOB).status_code == 202

    def test_quota_is_exact_under_concurrent_creation(self, app: RunningApp) -> None:
        caller = app.caller(max_queued=3)

        with ThreadPoolExecutor(8) as pool:
            codes = list(
                pool.map(lambda _: caller.post("/v1/jobs", json=JOB).status_code, range(8))
            )

        assert sorted(codes) == [202] * 3 + [429] * 5

    def test_priority_needs_its_scope(self, caller: Caller) -> None:
        plain = caller.with_scopes(Scope.JOBS_WRITE)

        refused = plain.post("/v1/jobs", json={**JOB, "priority": 1})

        assert (refused.status_code, refused.json()["code"]) == (403, "insufficient_scope")
        assert caller.post("/v1/jobs", json={**JOB, "priority": 1}).status_code == 202


class TestReading:
    def test_unchanged_job_is_not_sent_again(self, caller: Caller) -> None:
        path = f"/v1/jobs/{caller.create_job()['id']}"
        tag = caller.get(path).headers["etag"]

        unchanged = caller.get(path, headers={"If-None-Match": tag})
        start(caller, path.rpartition("/")[2])
        changed = caller.get(path, headers={"If-None-Match": tag})

        assert (unchanged.status_code, unchanged.content) == (304, b"")
        assert changed.status_code == 200
        assert changed.headers["etag"] != tag

    def test_finished_job_shows_result_and_artifacts(self, caller: Caller) -> None:
        job_id = finished_job(caller, {"report.json": b"{}"})

        job = caller.get(f"/v1/jobs/{job_id}?expand=artifacts").json()

        assert job["status"] == "succeeded"
        assert job["result"]["metrics"]["delta"] == {"parity": -0.25}
        assert job["result"]["artifacts"] == [job["artifacts"][0]["id"]]
        assert job["artifacts"][0]["name"] == "report.json"
        assert job["finished_at"] is not None

    def test_failed_job_shows_error_and_hint(self, caller: Caller) -> None:
        job = caller.get(f"/v1/jobs/{failed_job(caller)}").json()

        assert job["error"]["code"] == "internal"
        assert job["error"]["hint"] == "Try again."

    def test_position_counts_the_jobs_ahead(self, caller: Caller) -> None:
        caller.create_job()
        caller.create_job(priority=-1)
        last = caller.create_job(priority=-1)

        assert caller.get(f"/v1/jobs/{last['id']}").json()["queue"]["position"] == 3

    def test_summary_counts_by_status(self, caller: Caller) -> None:
        caller.create_job()
        finished_job(caller)

        summary = caller.get("/v1/jobs/summary").json()

        assert summary["by_status"]["queued"] == 1
        assert summary["by_status"]["succeeded"] == 1
        assert summary["by_status"]["failed"] == 0
        assert summary["by_device_class"] == {"cpu": {"queued": 1, "succeeded": 1}}

    @pytest.mark.parametrize("prefer", [False, True])
    def test_wait_answers_when_the_status_changes(self, caller: Caller, prefer: bool) -> None:
        job_id = caller.create_job()["id"]
        path = f"/v1/jobs/{job_id}" + ("" if prefer else "?wait=50")
        # The job may start before the request is read: the tag tells what was seen last.
        headers = {"If-None-Match": caller.get(f"/v1/jobs/{job_id}").headers["etag"]}
        if prefer:
            headers["Prefer"] = "respond-async, wait=50"

        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(caller.get, path, headers=headers)
            start(caller, job_id)
            assert answer.result().json()["status"] == "running"

    def test_wait_for_a_finished_job_answers_at_once(self, caller: Caller) -> None:
        job_id = finished_job(caller)

        assert caller.get(f"/v1/jobs/{job_id}?wait=60").json()["status"] == "succeeded"

    def test_wait_ends_with_its_time(self, caller: Caller) -> None:
        job_id = caller.create_job()["id"]

        assert caller.get(f"/v1/jobs/{job_id}?wait=0.05").json()["status"] == "queued"


class TestListing:
    def test_pages_hold_every_job_once_in_spite_of_new_ones(self, caller: Caller) -> None:
        made = [caller.create_job()["id"] for _ in range(5)]
        seen: list[str] = []
        path = "/v1/jobs?limit=2"

        while path:
            answer = caller.get(path)
            seen += [job["id"] for job in answer.json()["data"]]
            caller.create_job()
            path = answer.links["next"]["url"] if "next" in answer.links else ""

        assert seen == made[::-1]

    def test_last_page_has_no_next(self, caller: Caller) -> None:
        caller.create_job()

        answer = caller.get("/v1/jobs?limit=1")

        assert answer.json()["has_more"] is False
        assert answer.json()["next_cursor"] is None
        assert "link" not in answer.headers

    def test_cursor_holds_for_its_filters_only(self, caller: Caller) -> None:
        for _ in range(2):
            caller.create_job()
        cursor = caller.get("/v1/jobs?limit=1").json()["next_cursor"]

        answer = caller.get(f"/v1/jobs?limit=1&status=queued&cursor={cursor}")

        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_cursor")

    def test_listed_job_has_its_config_as_it_was_sent(self, caller: Caller) -> None:
        created = caller.create_job(config={"steps": 7})

        (listed,) = caller.get("/v1/jobs").json()["data"]
        read = caller.get(f"/v1/jobs/{created['id']}").json()

        assert listed["config"] == {"steps": 7}
        assert read["config"] == created["config"]
        assert read["config"].keys() > {"steps"}
        differing = {name for name in read if read[name] != listed[name]}
        assert differing == {"config", "queue"}

    def test_cursor_of_another_list_is_refused(self, caller: Caller) -> None:
        for _ in range(2):
            caller.create_job()
        cursor = caller.get("/v1/jobs?limit=1").json()["next_cursor"]

        assert caller.get(f"/v1/api-keys?cursor={cursor}").status_code == 400

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("status=queued", ["plain", "labelled"]),
            ("status=succeeded", ["done"]),
            ("status=succeeded&status=queued", ["plain", "labelled", "done"]),
            ("method=fake", ["plain", "labelled", "done"]),
            ("method=other", []),
            ("kind=debias", ["plain", "labelled", "done"]),
            ("label=team:nlp", ["labelled"]),
            ("label=team:nlp&label=tier:gold", []),
            ("q=pla", ["plain"]),
            ("q=PLA", []),
            ("q=%25", []),
            ("created_after=2020-01-01T00:00:00Z", ["plain", "labelled", "done"]),
            ("created_before=2020-01-01T00:00:00Z", []),
            ("model_version_id=mv_00000000000000000000000000", []),
        ],
    )
    def test_filters(self, caller: Caller, query: str, expected: list[str]) -> None:
        finished_job(caller, name="done")
        caller.create_job(name="labelled", labels={"team": "nlp"})
        caller.create_job(name="plain")

        answer = caller.get(f"/v1/jobs?{query}")

        assert answer.status_code == 200, answer.text
        assert [job["name"] for job in answer.json()["data"]] == expected
