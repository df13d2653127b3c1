"""What operators can do: projects and their limits, keys for tenants, workers and queues."""

import json
import secrets
from typing import Any

import pytest
import sqlalchemy as sa

from app.db.tables import AuditEntry, IdempotencyKey, Worker
from app.domain.ids import IdPrefix, format_id
from app.security.scopes import TENANT, Scope
from tests.execution import add_worker
from tests.integration.api.callers import Caller, RunningApp

PROJECTS = "/v1/admin/projects"


def unique_name() -> str:
    return f"tenant-{secrets.token_hex(4)}"


def new_project(operator: Caller, **fields: Any) -> dict[str, Any]:
    answer = operator.post(PROJECTS, json={"name": unique_name(), **fields})
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json()
    return body


def tenant(operator: Caller, made: dict[str, Any]) -> Caller:
    return Caller(operator.app, operator.project_id, made["key"]["secret"])


def patch(operator: Caller, project: dict[str, Any], **fields: Any) -> Any:
    return operator.request("PATCH", f"{PROJECTS}/{project['id']}", json=fields)


def audit_of(app: RunningApp, target: str) -> list[AuditEntry]:
    with app.database.read() as session:
        statement = sa.select(AuditEntry).where(AuditEntry.target == target)
        return list(session.execute(statement.order_by(AuditEntry.id)).scalars())


def test_a_new_project_has_a_key_that_works_inside_it_alone(caller: Caller) -> None:
    made = new_project(caller, max_queued=7)

    me = tenant(caller, made).get("/v1/me").json()
    refused = tenant(caller, made).get(PROJECTS)

    assert me["project"]["name"] == made["project"]["name"]
    assert me["scopes"] == sorted(TENANT)
    assert "admin" not in me["scopes"]
    assert me["quotas"]["max_queued"] == {"limit": 7, "used": 0}
    assert (refused.status_code, refused.json()["code"]) == (403, "insufficient_scope")


def test_a_repeated_request_makes_one_project_and_shows_no_secret(caller: Caller) -> None:
    body, headers = {"name": unique_name()}, {"Idempotency-Key": "once"}
    made = caller.post(PROJECTS, json=body, headers=headers)

    again = caller.post(PROJECTS, json=body, headers=headers)

    assert (made.status_code, again.status_code) == (201, 201)
    assert again.headers["idempotency-replayed"] == "true"
    expected = made.json()
    secret = expected["key"].pop("secret")
    assert again.json() == {**expected, "key": {**expected["key"], "secret": None}}
    with caller.app.database.read() as session:
        stored = session.execute(sa.select(IdempotencyKey.response)).scalars().all()
    assert secret not in json.dumps(stored)


def test_a_taken_name_is_a_conflict_and_makes_nothing(caller: Caller) -> None:
    first, second = new_project(caller)["project"], new_project(caller)["project"]

    made = caller.post(PROJECTS, json={"name": first["name"]})
    renamed = patch(caller, second, name=first["name"])

    assert [(a.status_code, a.json()["code"]) for a in (made, renamed)] == [(409, "conflict")] * 2
    assert caller.get(f"{PROJECTS}/{second['id']}").json() == second


def test_limits_change_and_hold_from_the_next_request_on(caller: Caller) -> None:
    made = new_project(caller)
    project = made["project"]

    changed = patch(caller, project, max_queued=0, weight=3, max_storage_bytes=10)
    refused = tenant(caller, made).post(
        "/v1/jobs", json={"model": {"path": "tiny"}, "method": "fake"}
    )
    unlimited = patch(caller, project, max_storage_bytes=None).json()

    assert changed.json() == {
        **project,
        "max_queued": 0,
        "weight": 3.0,
        "max_storage_bytes": 10,
        "updated_at": changed.json()["updated_at"],
    }
    assert (refused.status_code, refused.json()["code"]) == (429, "quota_exceeded")
    assert unlimited["max_storage_bytes"] is None


def test_a_change_of_an_outdated_copy_is_refused(caller: Caller) -> None:
    project = new_project(caller)["project"]
    path = f"{PROJECTS}/{project['id']}"
    tag = caller.get(path).headers["etag"]
    current = caller.request("PATCH", path, json={"weight": 2}, headers={"If-Match": tag})

    late = caller.request("PATCH", path, json={"weight": 9}, headers={"If-Match": tag})
    same = caller.get(path, headers={"If-None-Match": current.headers["etag"]})

    assert (current.status_code, late.status_code) == (200, 412)
    assert late.json()["code"] == "precondition_failed"
    assert same.status_code == 304
    assert caller.get(path).json()["weight"] == 2.0


def test_what_changes_nothing_leaves_version_and_audit_log_alone(caller: Caller) -> None:
    project = new_project(caller, weight=2)["project"]
    path = f"{PROJECTS}/{project['id']}"
    tag = caller.get(path).headers["etag"]

    patch(caller, project, weight=2)

    assert caller.get(path).headers["etag"] == tag
    assert [entry.action for entry in audit_of(caller.app, project["id"])] == ["project.created"]


@pytest.mark.parametrize(
    "fields",
    [
        {"weight": 0},
        {"weight": -1},
        {"weight": 1e300},
        {"weight": None},
        {"max_running": -1},
        {"max_queued": True},
        {"max_storage_bytes": -1},
        {"max_storage_bytes": 2**63},
        {"max_gpu_s_per_day": 2**31},
        {"retention_days": 0},
        {"suspended": None},
        {"name": "No Spaces"},
        {"name": "a" * 64},
        {"quota": 1},
    ],
)
def test_limits_that_make_no_sense_are_refused(caller: Caller, fields: dict[str, Any]) -> None:
    project = new_project(caller)["project"]

    changed = patch(caller, project, **fields)
    made = caller.post(PROJECTS, json={"name": unique_name(), **fields})

    assert [answer.status_code for answer in (changed, made)] == [422, 422]
    assert caller.get(f"{PROJECTS}/{project['id']}").json() == project


def test_the_default_project_keeps_the_name_by_which_it_is_found(caller: Caller) -> None:
    projects = caller.get(PROJECTS, params={"limit": 100}).json()["data"]
    default = next((p for p in projects if p["name"] == "default"), None)
    if default is None:
        default = new_project(caller, name="default")["project"]

    answer = patch(caller, default, name=unique_name())

    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")


def test_projects_are_listed_page_by_page(caller: Caller) -> None:
    made = [new_project(caller)["project"]["id"] for _ in range(3)]

    first = caller.get(PROJECTS, params={"limit": 2}).json()
    second = caller.get(PROJECTS, params={"limit": 2, "cursor": first["next_cursor"]}).json()

    assert [project["id"] for project in first["data"] + second["data"]][:3] == made[::-1]


def test_every_change_is_in_the_log_of_the_project_it_concerns(caller: Caller) -> None:
    made = new_project(caller)
    project = made["project"]
    patch(caller, project, suspended=True)
    key = caller.post(f"{PROJECTS}/{project['id']}/keys", json={"name": "lost"}).json()

    created, changed = audit_of(caller.app, project["id"])
    (key_entry,) = audit_of(caller.app, key["id"])

    assert (created.action, changed.action) == ("project.created", "project.changed")
    assert changed.details == {"suspended": {"from": False, "to": True}}
    assert key_entry.action == "key.created"
    assert {entry.actor for entry in (created, changed, key_entry)} == {"operator"}
    owners = {format_id(IdPrefix.PROJECT, e.project_id) for e in (created, changed, key_entry)}
    assert owners == {project["id"]}
    assert made["key"]["secret"] not in json.dumps(created.details)


def test_a_tenant_who_lost_its_key_gets_another(caller: Caller) -> None:
    project = new_project(caller)["project"]
    path = f"{PROJECTS}/{project['id']}/keys"

    key = caller.post(path, json={"name": "spare", "scopes": ["jobs:read"]}).json()
    owner = Caller(caller.app, caller.project_id, key["secret"])

    assert owner.get("/v1/me").json()["project"]["id"] == project["id"]
    assert owner.get("/v1/me").json()["scopes"] == ["jobs:read"]


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"scopes": ["admin"]}, "/scopes"),
        ({"scopes": ["jobs:read", "admin"]}, "/scopes"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, "/expires_at"),
    ],
)
def test_no_key_for_a_tenant_reaches_beyond_its_project(
    caller: Caller, fields: dict[str, Any], pointer: str
) -> None:
    project = new_project(caller)["project"]

    answer = caller.post(f"{PROJECTS}/{project['id']}/keys", json={"name": "x", **fields})

    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)


def test_what_is_not_there_is_not_found(caller: Caller) -> None:
    nobody, no_worker = "prj_" + "0" * 26, "wrk_" + "0" * 26

    answers = [
        caller.get(f"{PROJECTS}/{nobody}"),
        caller.get(f"{PROJECTS}/{nobody.replace('prj', 'key')}"),
        caller.request("PATCH", f"{PROJECTS}/{nobody}", json={"weight": 2}),
        caller.post(f"{PROJECTS}/{nobody}/keys", json={"name": "x"}),
        caller.post(f"/v1/admin/workers/{no_worker}/drain"),
    ]

    assert [(a.status_code, a.json()["code"]) for a in answers] == [(404, "not_found")] * 5


def shown_worker(operator: Caller, worker_id: str) -> dict[str, Any]:
    listed = operator.get("/v1/admin/workers", params={"limit": 100}).json()["data"]
    found: dict[str, Any] = next(worker for worker in listed if worker["id"] == worker_id)
    return found


def test_a_worker_asked_to_drain_says_so_and_is_no_slot_from_then_on(caller: Caller) -> None:
    identity = add_worker(caller.app.database, classes=("drained",), device="cuda:0")
    worker_id = format_id(IdPrefix.WORKER, identity.id)
    before = shown_worker(caller, worker_id)

    answers = [caller.post(f"/v1/admin/workers/{worker_id}/drain") for _ in range(2)]

    assert (before["state"], before["draining"], before["device"]) == ("ready", False, "cuda:0")
    assert [(a.status_code, a.json()["draining"]) for a in answers] == [(202, True)] * 2
    assert shown_worker(caller, worker_id)["draining"]
    assert [entry.action for entry in audit_of(caller.app, worker_id)] == ["worker.drained"] * 2


def test_a_worker_that_has_ended_cannot_drain(caller: Caller) -> None:
    identity = add_worker(caller.app.database, state="stopped")

    answer = caller.post(f"/v1/admin/workers/{format_id(IdPrefix.WORKER, identity.id)}/drain")

    assert (answer.status_code, answer.json()["code"]) == (409, "invalid_state")


def test_queues_tell_what_waits_and_who_serves(caller: Caller) -> None:
    with caller.app.database.write() as session:
        session.execute(sa.update(Worker).values(state="stopped"))
    before = queue(caller, "cpu")
    caller.create_job()
    add_worker(caller.app.database)
    add_worker(caller.app.database, drain_requested=True)

    after = queue(caller, "cpu")

    assert (before["workers"], before["idle_slots"]) == (0, 0)
    assert (after["workers"], after["idle_slots"]) == (2, 1)
    assert after["queued"] == before["queued"] + 1
    assert after["oldest_age_s"] >= 0


def queue(operator: Caller, device_class: str) -> dict[str, Any]:
    listed = operator.get("/v1/admin/queues").json()["data"]
    found: dict[str, Any] = next(q for q in listed if q["device_class"] == device_class)
    return found


def test_administration_needs_the_scope_admin_and_no_other(app: RunningApp) -> None:
    tenants = app.caller(scopes=tuple(TENANT))
    operator = app.caller(scopes=(Scope.ADMIN,))

    paths = [PROJECTS, "/v1/admin/workers", "/v1/admin/queues"]

    assert {tenants.get(path).status_code for path in paths} == {403}
    assert {operator.get(path).status_code for path in paths} == {200}
