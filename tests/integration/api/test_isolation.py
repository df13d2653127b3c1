"""The wall between projects, at every operation of the application."""

import json
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.routing import APIRoute
from pydantic import BaseModel

from app.api.deps import IdempotencyTicket
from app.api.openapi import api_routes, required_scope
from app.domain.clock import format_time, unix_ms
from app.domain.ids import IdPrefix, format_id, new_id
from app.security.scopes import GRANTABLE, TENANT, Scope
from tests.integration.api.callers import JOB, Caller, RunningApp
from tests.integration.api.route_table import IDS_IN_BODIES, OPERATIONS, Operation, Reach
from tests.integration.api.runs import (
    finished_job,
    write_evaluation,
    write_log,
    write_metric,
    write_version,
)

SHOWN_ID = re.compile(r"[a-z]+_[0-9a-z]{26}")
PAGE_PARAMETERS = {"limit", "cursor"}
OWNED = {
    "job_id": IdPrefix.JOB,
    "artifact_id": IdPrefix.ARTIFACT,
    "key_id": IdPrefix.KEY,
}
# Names in paths that are no ids of a project's things.
SHARED_NAMES = {"name": "fake", "code": "not_found", "project_id": "prj_x", "worker_id": "wrk_x"}
# Answers differ in these for reasons of their own.
OWN_HEADERS = {"x-request-id", "date"}


@dataclass(frozen=True)
class Owner:
    """A project with one of everything, all of it marked."""

    caller: Caller
    mark: str
    ids: Mapping[str, str]
    cursors: Mapping[str, str]

    def traces(self) -> set[str]:
        """What no answer to another project may hold."""
        return {self.mark, self.caller.shown_project, *self.ids.values()}


@pytest.fixture(scope="module")
def owner(app: RunningApp) -> Owner:
    mark = f"mark{secrets.token_hex(6)}"
    caller = app.caller(name=mark)
    job_id = finished_job(
        caller,
        {"report.json": b'{"a": 1}', f"{mark}.json": b"{}"},
        name=mark,
        labels={"team": mark},
    )
    write_log(caller, job_id, [mark])
    write_metric(caller, job_id, mark, [1.0])
    write_evaluation(caller, job_id, metric=mark)
    key = caller.post("/v1/api-keys", json={"name": mark, "scopes": ["jobs:read"]}).json()
    caller.request("PUT", "/v1/secrets/hub_token", json={"value": f"hf_{mark}_secret"})
    caller.create_job(name=mark)
    artifacts = caller.get(f"/v1/jobs/{job_id}/artifacts").json()["data"]
    ids = {
        "job_id": job_id,
        "artifact_id": artifacts[0]["id"],
        "key_id": key["id"],
        "version_id": write_version(caller, job_id, {"config.json": mark.encode()}),
    }
    cursors = {
        path: caller.get(path, params={"limit": 1}).json()["next_cursor"]
        for path in ("/v1/jobs", "/v1/api-keys", "/v1/audit-log")
    }
    assert all(cursors.values())
    return Owner(caller, mark, ids, cursors)


@pytest.fixture(scope="module")
def stranger(app: RunningApp) -> Caller:
    """A project that has jobs and keys of its own, whose key may do all that a tenant's may."""
    caller = app.caller(scopes=sorted(TENANT))
    caller.create_job()
    caller.get("/v1/me")
    return caller


def routes(app: RunningApp) -> Iterator[tuple[str, APIRoute, Operation]]:
    """All (method, route, entry), HEAD beside each GET."""
    for route in api_routes(app.fastapi):
        entry = OPERATIONS[str(route.operation_id)]
        for method in sorted(route.methods):
            yield method, route, entry
            if method == "GET":
                yield "HEAD", route, entry


def path_of(route: APIRoute, ids: Mapping[str, str]) -> str:
    """Fill the path; parameters that are no ids get a name that exists."""
    return route.path.format(**{**SHARED_NAMES, **ids})


def query_names(dependant: Any) -> set[str]:
    names: set[str] = set()
    for field in dependant.query_params:
        model = field.field_info.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            names |= {info.alias or name for name, info in model.model_fields.items()}
        else:
            names.add(field.alias)
    return names.union(*(query_names(inner) for inner in dependant.dependencies))


def body_fields(model: Any, seen: set[Any] | None = None) -> Iterator[str]:
    """Names of all fields of a request body, nested ones too."""
    seen = set() if seen is None else seen
    for part in (model, *getattr(model, "__args__", ())):
        if isinstance(part, type) and issubclass(part, BaseModel) and part not in seen:
            seen.add(part)
            for name, info in part.model_fields.items():
                yield info.alias or name
                yield from body_fields(info.annotation, seen)
        elif part is not model:
            yield from body_fields(part, seen)


class TestTable:
    """The table is complete, and says of each operation what the application says."""

    def test_every_operation_has_an_entry(self, app: RunningApp) -> None:
        assert {route.operation_id for route in api_routes(app.fastapi)} == set(OPERATIONS)

    def test_scopes_are_those_of_the_application(self, app: RunningApp) -> None:
        wrong = {
            route.operation_id: (required_scope(route), OPERATIONS[str(route.operation_id)].scope)
            for route in api_routes(app.fastapi)
            if required_scope(route) != OPERATIONS[str(route.operation_id)].scope
        }
        assert wrong == {}

    def test_only_public_operations_need_no_scope(self) -> None:
        open_to_all = {name for name, entry in OPERATIONS.items() if entry.scope is None}
        public = {
            name
            for name, entry in OPERATIONS.items()
            if entry.reach in (Reach.PUBLIC, Reach.SIGNED)
        }
        assert open_to_all == public

    def test_what_a_path_names_is_known(self, app: RunningApp) -> None:
        for route in api_routes(app.fastapi):
            names = set(route.param_convertors)
            entry = OPERATIONS[str(route.operation_id)]
            assert names <= OWNED.keys() | SHARED_NAMES.keys(), route.path
            signed = entry.reach is Reach.SIGNED
            assert bool(names & OWNED.keys()) == (entry.reach is Reach.ITEM or signed), route.path

    def test_every_filter_of_a_list_is_tried(self, app: RunningApp) -> None:
        for route in api_routes(app.fastapi):
            entry = OPERATIONS[str(route.operation_id)]
            if entry.reach is Reach.LIST:
                known = query_names(route.dependant) - PAGE_PARAMETERS
                assert set(entry.filters) == known, route.operation_id

    def test_ids_in_bodies_are_tried(self, app: RunningApp) -> None:
        found: dict[str, set[str]] = {}
        for route in api_routes(app.fastapi):
            if route.body_field is not None:
                fields = set(body_fields(route.body_field.field_info.annotation))
                ids = {name for name in fields if name.endswith(("_id", "_ids"))}
                if ids:
                    found[str(route.operation_id)] = ids
        assert found == IDS_IN_BODIES

    def test_operations_that_take_idempotency_keys_are_marked(self, app: RunningApp) -> None:
        ticket = IdempotencyTicket.__metadata__[0].dependency
        taking = {
            route.operation_id
            for route in api_routes(app.fastapi)
            if any(inner.call is ticket for inner in route.dependant.dependencies)
        }
        assert taking == {name for name, entry in OPERATIONS.items() if entry.idempotent}


class TestScopes:
    def test_every_operation_refuses_a_key_without_its_scope(self, app: RunningApp) -> None:
        project = app.caller()
        lacking = {
            scope: project.with_scopes(*(GRANTABLE - {scope})) for scope in sorted(GRANTABLE)
        }
        ids = absent_ids(app)

        for method, route, entry in routes(app):
            if entry.scope in (None, Scope.PROFILE_READ):
                continue
            assert entry.scope is not None
            answer = lacking[entry.scope].request(
                method, path_of(route, ids), json=dict(entry.body or {})
            )
            assert answer.status_code == 403, (method, route.path)
            if method != "HEAD":
                assert answer.json()["code"] == "insufficient_scope"
                assert f"the scope {entry.scope}." in answer.json()["detail"], route.path

    def test_every_operation_with_a_scope_needs_a_key(self, app: RunningApp) -> None:
        for method, route, entry in routes(app):
            if entry.scope is None:
                continue
            answer = app.client.request(method, path_of(route, absent_ids(app)))
            assert answer.status_code == 401, (method, route.path)


def absent_ids(app: RunningApp) -> dict[str, str]:
    """Ids of nothing, of the form that ids have."""
    with app.database.read() as session:
        now_ms = unix_ms(app.database.now(session))
    return {name: format_id(prefix, new_id(now_ms)) for name, prefix in OWNED.items()}


@contextmanager
def statements_of_requests(app: RunningApp) -> Iterator[list[str]]:
    """Collect the SQL of requests; the threads that watch over jobs and health are left out."""
    engine = app.client.app_state["runtime"].context.database.engine
    found: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "AnyIO" in threading.current_thread().name:
            found.append(statement)

    sa.event.listen(engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)


@dataclass(frozen=True)
class Answer:
    """An answer without what differs between any two, and the SQL it took."""

    status: int
    headers: dict[str, str]
    text: str
    statements: tuple[str, ...]


def ask(caller: Caller, method: str, path: str, **options: Any) -> Answer:
    ids = SHOWN_ID.findall(path)

    def masked(text: str) -> str:
        for shown in ids:
            text = text.replace(shown, "<id>")
        return text

    with statements_of_requests(caller.app) as statements:
        response = caller.request(method, path, **options)
    headers = {
        name: masked(value)
        for name, value in response.headers.items()
        if name.lower() not in OWN_HEADERS
    }
    text = masked(response.text.replace(response.headers["x-request-id"], "<request>"))
    return Answer(response.status_code, headers, text, tuple(statements))


def snapshot(owner: Owner) -> list[Any]:
    """What the owner sees of its things."""
    caller, ids = owner.caller, owner.ids
    paths = (
        "/v1/jobs",
        f"/v1/jobs/{ids['job_id']}/events",
        f"/v1/artifacts/{ids['artifact_id']}",
        f"/v1/api-keys/{ids['key_id']}",
        "/v1/secrets",
        "/v1/audit-log",
    )
    return [caller.get(path).json() for path in paths]


class TestForeignIds:
    def test_foreign_ids_look_like_ids_of_nothing(
        self, app: RunningApp, owner: Owner, stranger: Caller
    ) -> None:
        """Same status, body, headers and statements, whatever the method and the media type."""
        before, tried = snapshot(owner), 0
        for method, route, entry in routes(app):
            if entry.reach is not Reach.ITEM:
                continue
            for accept in entry.accepts:
                options: dict[str, Any] = {"headers": {"Accept": accept}}
                if method not in ("GET", "HEAD"):
                    options["json"] = dict(entry.body or {})
                foreign = ask(stranger, method, path_of(route, owner.ids), **options)
                absent = ask(stranger, method, path_of(route, absent_ids(app)), **options)

                assert foreign == absent, (method, route.path, accept)
                assert foreign.status == 404, (method, route.path, accept)
                assert method == "HEAD" or json.loads(foreign.text)["code"] == "not_found"
                assert not leaks(owner, foreign), (method, route.path)
                tried += 1
        assert tried >= 40
        assert snapshot(owner) == before

    @pytest.mark.parametrize("wait", ["query", "header"])
    def test_waiting_for_a_foreign_job_ends_at_once(
        self, app: RunningApp, owner: Owner, stranger: Caller, wait: str
    ) -> None:
        options: dict[str, Any] = (
            {"params": {"wait": 60}} if wait == "query" else {"headers": {"Prefer": "wait=60"}}
        )
        foreign = ask(stranger, "GET", f"/v1/jobs/{owner.ids['job_id']}", **options)
        absent = ask(stranger, "GET", f"/v1/jobs/{absent_ids(app)['job_id']}", **options)

        assert (foreign.status, foreign.text) == (404, absent.text)

    @pytest.mark.parametrize("follow", [{"follow": "true"}, {"stream": "log"}, {"attempt": "1"}])
    def test_foreign_logs_cannot_be_followed(
        self, owner: Owner, stranger: Caller, follow: dict[str, str]
    ) -> None:
        path = f"/v1/jobs/{owner.ids['job_id']}/logs"
        answer = ask(stranger, "GET", path, params=follow, headers={"Accept": "text/plain"})

        assert answer.status == 404
        assert not leaks(owner, answer)

    @pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/estimate"])
    def test_foreign_version_in_a_body_looks_like_none(
        self, owner: Owner, stranger: Caller, path: str
    ) -> None:
        absent = "mv_" + "0" * 26
        answers = [
            ask(stranger, "POST", path, json={**JOB, "model": {"version_id": version}})
            for version in (owner.ids["version_id"], absent)
        ]

        assert answers[0] == answers[1]
        assert "model_version_not_found" in answers[0].text
        assert not leaks(owner, answers[0])

    def test_matching_a_foreign_version_with_if_match_tells_nothing(
        self, app: RunningApp, owner: Owner, stranger: Caller
    ) -> None:
        tag = owner.caller.get(f"/v1/jobs/{owner.ids['job_id']}").headers["etag"]
        for method, header in (("GET", "If-None-Match"), ("PATCH", "If-Match")):
            options: dict[str, Any] = {"headers": {header: tag}}
            if method == "PATCH":
                options["json"] = {"name": "mine"}
            foreign = ask(stranger, method, f"/v1/jobs/{owner.ids['job_id']}", **options)
            absent = ask(stranger, method, f"/v1/jobs/{absent_ids(app)['job_id']}", **options)
            assert foreign == absent
            assert foreign.status == 404


def leaks(owner: Owner, answer: Answer) -> set[str]:
    """Tell what of the owner's shows in an answer."""
    shown = answer.text + repr(answer.headers)
    return {trace for trace in owner.traces() if trace in shown}


def filter_values(owner: Owner) -> dict[str, str]:
    """What the filters of the table stand for."""
    with owner.caller.app.database.read() as session:
        now = owner.caller.app.database.now(session)
    day = timedelta(days=1)
    times = {"yesterday": format_time(now - day), "tomorrow": format_time(now + day)}
    return {**owner.ids, "mark": owner.mark, **times}


class TestLists:
    def test_no_list_shows_rows_of_another_project(
        self, app: RunningApp, owner: Owner, stranger: Caller
    ) -> None:
        values = filter_values(owner)
        for method, route, entry in routes(app):
            if entry.reach is not Reach.LIST:
                continue
            filled = {name: text.format(**values) for name, text in entry.filters.items()}
            for parameters in ({}, *({name: value} for name, value in filled.items()), filled):
                answer = ask(stranger, method, route.path, params=parameters)
                assert answer.status == 200, (route.path, parameters, answer.text)
                assert not leaks(owner, answer), (route.path, parameters)

    def test_owner_sees_what_the_filters_ask_for(self, app: RunningApp, owner: Owner) -> None:
        """The filters of the table would find the owner's rows: they prove something."""
        values = filter_values(owner)
        for operation in ("listJobs", "listAuditLog"):
            route = next(r for r in api_routes(app.fastapi) if r.operation_id == operation)
            for name, text in OPERATIONS[operation].filters.items():
                if name in ("model_version_id", "key_id"):
                    continue  # of the owner's, but no job of its own uses them
                found = owner.caller.get(route.path, params={name: text.format(**values)}).json()
                assert found["data"], (operation, name)

    def test_cursor_of_another_project_leads_to_own_rows_only(
        self, owner: Owner, stranger: Caller
    ) -> None:
        for path, cursor in owner.cursors.items():
            answer = ask(stranger, "GET", path, params={"limit": 1, "cursor": cursor})

            assert answer.status == 200, path
            assert not leaks(owner, answer), path
            rows = json.loads(answer.text)["data"]
            own = stranger.get(path, params={"limit": 100}).json()["data"]
            assert all(row in own for row in rows)

    def test_counts_leave_out_what_others_have(self, stranger: Caller) -> None:
        counts = stranger.get("/v1/jobs/summary").json()["by_status"]
        used = stranger.get("/v1/me").json()["quotas"]["max_queued"]["used"]

        own = len(stranger.get("/v1/jobs", params={"limit": 100}).json()["data"])
        assert sum(counts.values()) == used == own


class TestIdempotencyKeys:
    @pytest.mark.parametrize("body", ["same", "other"])
    @pytest.mark.parametrize("path", ["/v1/jobs", "/v1/api-keys"])
    def test_key_of_another_project_replays_nothing(
        self, owner: Owner, stranger: Caller, path: str, body: str
    ) -> None:
        request = (
            {**JOB, "name": owner.mark}
            if path == "/v1/jobs"
            else {"name": owner.mark, "scopes": ["jobs:read"]}
        )
        headers = {"Idempotency-Key": f"shared-{secrets.token_hex(4)}"}
        made = owner.caller.post(path, json=request, headers=headers).json()["id"]
        if body == "other":
            request = {**request, "name": "mine"}

        answer = stranger.post(path, json=request, headers=headers)

        assert answer.status_code in (201, 202)
        assert "idempotency-replayed" not in answer.headers
        assert answer.json()["id"] != made
        assert made not in answer.text

    def test_every_such_operation_keeps_its_keys_apart(self) -> None:
        """The rest take a path with an id of the project, or only an operator can ask for them."""
        rest = {name for name, entry in OPERATIONS.items() if entry.idempotent}
        assert rest - {"createJob", "createApiKey"} == {
            name
            for name in rest
            if name == "rotateApiKey" or OPERATIONS[name].reach is Reach.OPERATOR
        }


class TestLinks:
    def test_signature_is_good_for_one_artifact_only(
        self, app: RunningApp, owner: Owner, stranger: Caller
    ) -> None:
        job_id = finished_job(stranger, {"own.json": b"{}"})
        own = stranger.get(f"/v1/jobs/{job_id}/artifacts").json()["data"][0]["id"]
        link = stranger.post(f"/v1/artifacts/{own}/download-url").json()["url"]
        path = link[link.index("/downloads/") :]
        assert app.client.get(path).content == b"{}"

        answers = [
            ask(stranger, method, path.replace(own, other))
            for method in ("GET", "HEAD")
            for other in (owner.ids["artifact_id"], absent_ids(app)["artifact_id"])
        ]

        assert answers[0] == answers[1]
        assert answers[2] == answers[3]
        assert {answer.status for answer in answers} == {401}
        assert not any(leaks(owner, answer) for answer in answers)


class TestOperators:
    def test_admin_is_nothing_that_a_tenant_can_give(self, stranger: Caller) -> None:
        answer = stranger.post("/v1/api-keys", json={"name": "up", "scopes": ["admin"]})

        assert (answer.status_code, answer.json()["code"]) == (403, "insufficient_scope")

    def test_tenant_cannot_tell_which_projects_there_are(
        self, app: RunningApp, owner: Owner, stranger: Caller
    ) -> None:
        absent = format_id(IdPrefix.PROJECT, new_id(0))
        for method, route, entry in routes(app):
            if entry.reach is not Reach.OPERATOR:
                continue
            answers = [
                ask(stranger, method, path_of(route, {"project_id": project}))
                for project in (owner.caller.shown_project, absent)
            ]
            assert answers[0] == answers[1], route.path
            assert answers[0].status == 403
            assert not leaks(owner, answers[0])


def test_the_walk_notices_a_leak(owner: Owner) -> None:
    """Taken from the owner's own answers: the comparison is able to fail."""
    job = ask(owner.caller, "GET", f"/v1/jobs/{owner.ids['job_id']}")
    noticed: Callable[[Answer], set[str]] = lambda answer: leaks(owner, answer)  # noqa: E731

    assert owner.mark in noticed(job)
    assert job.statements
