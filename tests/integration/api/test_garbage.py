"""What clients see of retention, and what operators do about it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.db.tables import JobEvent, Project
from app.security.scopes import Scope
from tests.hub_stand_in import HubStandIn
from tests.integration.api.callers import Caller, RunningApp, job_uuid
from tests.integration.api.conftest import run_app, settings_for
from tests.integration.api.runs import finished_job
from tests.retention import age

FILES = {"report.json": b'{"a": 1}', "report.html": b"<p>1</p>"}


@pytest.fixture
def app(database_url: str, tmp_path: Path, hub: HubStandIn) -> Iterator[RunningApp]:
    """An application of its own: what others leave running holds the collector back."""
    with run_app(settings_for(tmp_path, hub, database_url=database_url)) as running:
        yield running


@pytest.fixture
def operator(app: RunningApp) -> Caller:
    return app.caller(scopes=[Scope.ADMIN])


@pytest.fixture
def job_id(caller: Caller) -> str:
    return finished_job(caller, files=FILES)


def collect(operator: Caller, **parameters: str) -> dict[str, dict[str, int]]:
    answer = operator.post("/v1/admin/gc", params=parameters)
    assert answer.status_code == 200, answer.text
    return {part["kind"]: part for part in answer.json()["freed"]}


def artifacts(caller: Caller, job_id: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = caller.get(f"/v1/jobs/{job_id}/artifacts").json()["data"]
    return found


def test_expired_bytes_are_gone_everywhere_and_say_since_when(
    caller: Caller, operator: Caller, job_id: str
) -> None:
    link = caller.post(f"/v1/artifacts/{artifacts(caller, job_id)[0]['id']}/download-url").json()
    age(caller.app.database, job_uuid(job_id), 91)

    freed = collect(operator)

    assert freed["artifacts"]["rows"] == 2
    assert freed["blobs"]["size_bytes"] >= sum(map(len, FILES.values()))
    listed = artifacts(caller, job_id)
    assert [row["name"] for row in listed] == sorted(FILES)
    for row in listed:
        assert row["expires_at"] < row["deleted_at"]
        for answer in (
            caller.get(row["content"]),
            caller.post(f"/v1/artifacts/{row['id']}/download-url"),
        ):
            assert (answer.status_code, answer.json()["code"]) == (410, "gone")
            assert row["expires_at"] in answer.json()["detail"]
    assert caller.app.client.get(link["url"]).status_code == 410
    assert caller.get(f"/v1/jobs/{job_id}/report").status_code == 410
    assert caller.get(f"/v1/jobs/{job_id}").status_code == 200


def test_an_expiry_to_come_is_shown_and_moves_with_the_projects_retention(
    caller: Caller, operator: Caller, job_id: str
) -> None:
    collect(operator)
    first = artifacts(caller, job_id)[0]
    path = f"/v1/artifacts/{first['id']}"
    tag = caller.get(path).headers["ETag"]

    with caller.app.database.write() as session:
        session.execute(
            sa.update(Project).where(Project.id == caller.project_id).values(retention_days=7)
        )
    collect(operator)

    fresh = caller.get(path, headers={"If-None-Match": tag})
    assert fresh.status_code == 200
    assert first["created_at"] < fresh.json()["expires_at"] < first["expires_at"]
    assert fresh.json()["deleted_at"] is None


def test_a_dry_run_says_the_same_and_deletes_nothing(
    caller: Caller, operator: Caller, job_id: str
) -> None:
    age(caller.app.database, job_uuid(job_id), 91)

    promised = collect(operator, dry_run="true")

    assert all(row["deleted_at"] is None for row in artifacts(caller, job_id))
    assert caller.get(artifacts(caller, job_id)[0]["content"]).status_code == 200
    assert collect(operator) == promised
    assert promised["artifacts"]["rows"] == 2


def test_freed_bytes_are_counted_and_the_run_is_in_the_audit_log(
    caller: Caller, app: RunningApp, job_id: str
) -> None:
    operator = app.caller(scopes=[Scope.ADMIN, Scope.AUDIT_READ])
    before = counted(app)
    age(caller.app.database, job_uuid(job_id), 91)

    collect(operator, dry_run="true")
    freed = collect(operator)["blobs"]["size_bytes"]

    assert counted(app) == before + freed > before
    entries = operator.get("/v1/audit-log").json()["data"]
    assert [entry["action"] for entry in entries] == ["garbage.collected"]
    assert entries[0]["details"]["freed_bytes"] >= freed


def counted(app: RunningApp) -> float:
    name, labels = "debias_gc_deleted_bytes_total", {"kind": "blobs"}
    return app.fastapi.state.registry.get_sample_value(name, labels) or 0.0


def test_the_event_stream_of_a_job_whose_events_are_gone_ends(
    caller: Caller, operator: Caller, job_id: str
) -> None:
    age(caller.app.database, job_uuid(job_id), 181)

    assert collect(operator)["events"]["rows"] > 0

    with caller.app.database.read() as session:
        events = sa.select(sa.func.count()).where(JobEvent.job_id == job_uuid(job_id))
        assert session.execute(events).scalar_one() == 0
    stream = caller.get(f"/v1/jobs/{job_id}/events", headers={"Accept": "text/event-stream"})
    assert "event: done" in stream.text


def test_only_operators_collect(caller: Caller) -> None:
    stranger = caller.with_scopes(*(set(Scope) - {Scope.ADMIN}))

    assert stranger.post("/v1/admin/gc").status_code == 403
