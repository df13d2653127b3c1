"""The audit log: every change leaves an entry, and nobody sees or changes those of others."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from app.api.openapi import api_routes
from app.domain.audit import AuditAction
from app.domain.clock import format_time
from app.domain.ids import IdPrefix, format_id
from app.security.scopes import TENANT, Scope
from app.services.garbage import TARGET as GARBAGE
from tests.execution import add_worker
from tests.integration.api.callers import JOB, Caller, RunningApp
from tests.integration.api.route_table import OPERATIONS
from tests.integration.api.runs import failed_job, finished_job, start
from tests.integration.api.test_pausing import paused_job, running_job

CHANGING = {"POST", "PUT", "PATCH", "DELETE"}
UNKNOWN = {"job.unknown", "JOB.CREATED", ""}


def other_key(caller: Caller) -> str:
    body = {"name": "other", "scopes": ["jobs:read"]}
    return str(caller.post("/v1/api-keys", json=body).json()["id"])


def set_token(caller: Caller) -> str:
    caller.request("PUT", "/v1/secrets/hub_token", json={"value": "hf_" + "a" * 30})
    return "hub_token"


def linked_artifact(caller: Caller) -> str:
    job_id = finished_job(caller, {"a.json": b"{}"})
    return str(caller.get(f"/v1/jobs/{job_id}/artifacts").json()["data"][0]["id"])


# What the path of an operation names, made so that the operation succeeds.
TARGETS: dict[str, Callable[[Caller], str]] = {
    "updateJob": lambda caller: str(caller.create_job()["id"]),
    "cancelJob": lambda caller: str(caller.create_job()["id"]),
    "deleteJob": finished_job,
    "pauseJob": running_job,
    "resumeJob": paused_job,
    "retryJob": failed_job,
    "createDownloadUrl": linked_artifact,
    "rotateApiKey": other_key,
    "revokeApiKey": other_key,
    "setSecret": lambda _: "hub_token",
    "deleteSecret": set_token,
    "updateProject": lambda caller: caller.shown_project,
    "createProjectKey": lambda caller: caller.shown_project,
    "collectGarbage": lambda _: GARBAGE,
    "drainWorker": lambda caller: format_id(IdPrefix.WORKER, add_worker(caller.app.database).id),
}


def changing_operations() -> list[str]:
    return sorted(name for name, entry in OPERATIONS.items() if entry.audit is not None)


def entries(caller: Caller, **filters: Any) -> list[dict[str, Any]]:
    answer = caller.get("/v1/audit-log", params={"limit": 100, **filters})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["data"]
    return found


def entries_of_request(caller: Caller, request_id: str) -> list[dict[str, Any]]:
    found = caller.get("/v1/admin/audit-log", params={"limit": 100}).json()["data"]
    return [entry for entry in found if entry["request_id"] == request_id]


class TestEveryChange:
    def test_every_changing_operation_is_in_the_table(self, app: RunningApp) -> None:
        changing = {
            route.operation_id for route in api_routes(app.fastapi) if route.methods & CHANGING
        }

        assert changing == set(changing_operations())

    @pytest.mark.parametrize("operation", changing_operations())
    def test_change_leaves_one_entry_with_key_and_request(
        self, caller: Caller, operation: str
    ) -> None:
        entry = OPERATIONS[operation]
        route = next(r for r in api_routes(caller.app.fastapi) if r.operation_id == operation)
        target = TARGETS[operation](caller) if operation in TARGETS else None
        names = [*route.param_convertors, ""]
        path = route.path.format(**{names[0]: target})
        request_id = f"request-{operation}"
        body = dict(entry.body or {})
        if operation == "createProject":
            body["name"] = f"made-by-{caller.shown_project[-12:]}"

        answer = caller.request(
            next(iter(route.methods)), path, json=body, headers={"X-Request-Id": request_id}
        )

        assert answer.status_code < 300, answer.text
        found = entries_of_request(caller, request_id)
        if not isinstance(entry.audit, AuditAction):
            assert found == []
            return
        assert entry.audit in [row["action"] for row in found]
        own_key = caller.get("/v1/me").json()["key"]["id"]
        assert {row["key_id"] for row in found} == {own_key}
        made = answer.json() if answer.content else {}
        written = next(row for row in found if row["action"] == entry.audit)
        assert written["target"] in {target, made.get("id"), made.get("project", {}).get("id")}
        assert "secret" not in made or made["secret"] not in json.dumps(found)

    def test_refused_change_leaves_no_entry(self, caller: Caller) -> None:
        job_id = finished_job(caller)
        before = entries(caller)

        assert caller.post(f"/v1/jobs/{job_id}/cancel").status_code == 409
        assert caller.post("/v1/jobs", json={**JOB, "method": "none"}).status_code == 422
        assert caller.request("DELETE", "/v1/secrets/hub_token").status_code == 404

        assert entries(caller) == before

    def test_repetition_leaves_no_second_entry(self, caller: Caller) -> None:
        headers = {"Idempotency-Key": "once"}
        job_id = caller.post("/v1/jobs", json=JOB, headers=headers).json()["id"]
        caller.post("/v1/jobs", json=JOB, headers=headers)
        for _ in range(2):
            assert caller.post(f"/v1/jobs/{job_id}/cancel").status_code == 200

        assert [entry["action"] for entry in entries(caller)] == ["job.cancelled", "job.created"]

    def test_change_that_is_rolled_back_takes_its_entry_along(self, app: RunningApp) -> None:
        caller = app.caller(max_queued=0)
        assert caller.post("/v1/jobs", json=JOB).status_code == 429

        assert entries(caller) == []

    def test_no_value_that_was_written_is_in_the_details(self, caller: Caller) -> None:
        job_id = str(caller.create_job()["id"])
        labels = {"team": "a-label-to-regret"}
        caller.request("PATCH", f"/v1/jobs/{job_id}", json={"labels": labels, "name": "regret"})

        changed = entries(caller, action="job.changed")[0]

        assert changed["details"] == {"fields": ["labels", "name"]}


class TestReading:
    def test_entries_are_newest_first_and_paged(self, caller: Caller) -> None:
        jobs = [str(caller.create_job()["id"]) for _ in range(5)]
        seen, cursor = [], None
        while True:
            page = caller.get(
                "/v1/audit-log", params={"limit": 2, **({"cursor": cursor} if cursor else {})}
            )
            seen += [entry["target"] for entry in page.json()["data"]]
            cursor = page.json()["next_cursor"]
            assert page.json()["has_more"] == bool(cursor) == ("link" in page.headers)
            if cursor is None:
                break

        assert len(seen) == 5
        assert set(seen) == set(jobs)

    def test_filters_of_action_key_and_time(self, caller: Caller) -> None:
        job_id = str(caller.create_job()["id"])
        start(caller, job_id)
        caller.post(f"/v1/jobs/{job_id}/cancel")
        second = caller.with_scopes(Scope.JOBS_WRITE, Scope.JOBS_READ)
        second.create_job()
        second_id = second.get("/v1/me").json()["key"]["id"]
        made = entries(caller)[0]["at"]
        with caller.app.database.read() as session:
            later = caller.app.database.now(session) + timedelta(hours=1)

        actions = {"action": ["job.cancelled", "job.deleted"]}
        assert [entry["action"] for entry in entries(caller, **actions)] == ["job.cancelled"]
        assert [entry["key_id"] for entry in entries(caller, key_id=second_id)] == [second_id]
        assert len(entries(caller, created_before=format_time(later))) == 3
        assert entries(caller, created_after=format_time(later)) == []
        assert entries(caller, created_after=made)[0]["at"] == made

    @pytest.mark.parametrize(
        "parameters",
        [
            *({"action": action} for action in sorted(UNKNOWN)),
            {"key_id": "job_" + "0" * 26},
            {"key_id": "x"},
            {"created_after": "2026-01-01T00:00:00"},
            {"created_before": "yesterday"},
            {"project": "prj_" + "0" * 26},
            {"actions": "job.created"},
        ],
    )
    def test_wrong_filters_are_refused(self, caller: Caller, parameters: dict[str, str]) -> None:
        answer = caller.get("/v1/audit-log", params=parameters)

        assert (answer.status_code, answer.json()["code"]) == (422, "validation_failed")

    def test_cursor_of_other_filters_is_refused(self, caller: Caller) -> None:
        caller.create_job()
        caller.create_job()
        cursor = caller.get("/v1/audit-log", params={"limit": 1}).json()["next_cursor"]

        answer = caller.get("/v1/audit-log", params={"cursor": cursor, "action": "job.created"})

        assert answer.json()["code"] == "invalid_cursor"

    def test_nothing_changes_an_entry(self, caller: Caller) -> None:
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert caller.request(method, "/v1/audit-log", json={}).status_code == 405


class TestOperators:
    def test_operator_sees_all_projects_or_one(self, app: RunningApp, caller: Caller) -> None:
        tenant = app.caller(scopes=sorted(TENANT))
        tenant.create_job()
        caller.create_job()

        both = caller.get("/v1/admin/audit-log", params={"limit": 2}).json()["data"]
        one = caller.get("/v1/admin/audit-log", params={"project": tenant.shown_project}).json()

        assert {entry["project"] for entry in both} == {
            tenant.shown_project,
            caller.shown_project,
        }
        assert [entry["project"] for entry in one["data"]] == [tenant.shown_project]
        assert tenant.get("/v1/admin/audit-log").status_code == 403

    def test_tenant_sees_what_an_operator_did_but_not_with_which_key(
        self, app: RunningApp, caller: Caller
    ) -> None:
        tenant = app.caller(scopes=sorted(TENANT))
        path = f"/v1/admin/projects/{tenant.shown_project}"
        assert caller.request("PATCH", path, json={"weight": 3.0}).status_code == 200
        key_id = caller.get("/v1/me").json()["key"]["id"]

        entry = entries(tenant)[0]
        as_operator = caller.get(
            "/v1/admin/audit-log", params={"project": tenant.shown_project}
        ).json()["data"][0]

        assert (entry["action"], entry["actor"], entry["key_id"]) == (
            "project.changed",
            "operator",
            None,
        )
        assert as_operator["key_id"] == key_id
        assert entries(tenant, key_id=key_id) == []
