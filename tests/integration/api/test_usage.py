"""What a project has used, by day, method and key."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa

from app.db.tables import Job, JobAttempt
from app.domain.states import JobStatus
from tests.integration.api.callers import Caller, RunningApp, job_uuid
from tests.integration.api.runs import finish, start

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
MARCH = {"from": "2026-03-01T00:00:00Z", "to": "2026-04-01T00:00:00Z"}


def ended_job(
    caller: Caller,
    *,
    at: datetime = NOON,
    took_s: float = 10.5,
    device: str | None = "cpu",
    status: JobStatus = JobStatus.SUCCEEDED,
    files: dict[str, bytes] | None = None,
) -> UUID:
    """Make a job that ended at a moment of the past."""
    shown = caller.create_job()["id"]
    start(caller, shown)
    finish(caller, shown, status, files=files)
    job_id = job_uuid(shown)
    with caller.app.database.write() as session:
        session.execute(sa.update(Job).where(Job.id == job_id).values(finished_at=at))
        session.execute(
            sa.update(JobAttempt)
            .where(JobAttempt.job_id == job_id)
            .values(
                started_at=at - timedelta(seconds=took_s),
                ended_at=at,
                outcome="succeeded",
                device=device,
            )
        )
    return job_id


def usage(caller: Caller, **parameters: str) -> dict[str, Any]:
    answer = caller.get("/v1/usage", params={**MARCH, **parameters})
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def test_use_is_summed_up_by_day(caller: Caller) -> None:
    ended_job(caller, files={"report.json": b"12345"})
    ended_job(caller, took_s=2, device="cuda:0", status=JobStatus.FAILED)
    ended_job(caller, at=NOON + timedelta(hours=13), took_s=1)

    found = usage(caller)

    assert found["data"] == [
        {
            "group": "2026-03-10",
            "jobs": {"succeeded": 1, "failed": 1},
            "attempts": 2,
            "wall_s": 12.5,
            "gpu_s": 2.0,
            "stored_bytes": 5,
        },
        {
            "group": "2026-03-11",
            "jobs": {"succeeded": 1},
            "attempts": 1,
            "wall_s": 1.0,
            "gpu_s": 0.0,
            "stored_bytes": 0,
        },
    ]
    assert found["total"] == {
        "jobs": {"succeeded": 2, "failed": 1},
        "attempts": 3,
        "wall_s": 13.5,
        "gpu_s": 2.0,
        "stored_bytes": 5,
    }
    assert (found["from"], found["to"]) == ("2026-03-01T00:00:00.000Z", "2026-04-01T00:00:00.000Z")


def test_use_is_told_apart_by_key_and_by_method(caller: Caller) -> None:
    second = caller.post("/v1/api-keys", json={"name": "b", "scopes": ["jobs:write"]}).json()
    ended_job(caller)
    ended_job(Caller(caller.app, caller.project_id, second["secret"]), took_s=4)
    mine = caller.get("/v1/me").json()["key"]["id"]

    by_key = {row["group"]: row["wall_s"] for row in usage(caller, group_by="key")["data"]}
    by_method = usage(caller, group_by="method")["data"]

    assert by_key == {mine: 10.5, second["id"]: 4.0}
    assert [(row["group"], row["attempts"]) for row in by_method] == [("fake", 2)]


def test_the_beginning_counts_and_the_end_does_not(caller: Caller) -> None:
    ended_job(caller, at=datetime(2026, 3, 1, tzinfo=UTC))
    ended_job(caller, at=datetime(2026, 4, 1, tzinfo=UTC))

    assert usage(caller)["total"]["attempts"] == 1


def test_a_day_is_one_in_utc_whatever_the_zone_of_the_question(caller: Caller) -> None:
    ended_job(caller, at=datetime(2026, 3, 10, 23, 30, tzinfo=UTC))

    found = usage(caller, **{"from": "2026-03-10T12:00:00+09:00"})

    assert [row["group"] for row in found["data"]] == ["2026-03-10"]


def test_deleted_jobs_count_and_those_of_others_do_not(app: RunningApp) -> None:
    caller, other = app.caller(), app.caller()
    job_id = ended_job(caller)
    ended_job(other)
    with app.database.write() as session:
        session.execute(sa.update(Job).where(Job.id == job_id).values(deleted_at=NOON))

    assert usage(caller)["total"]["jobs"] == {"succeeded": 1}


def test_the_last_month_is_what_is_told_unasked(caller: Caller) -> None:
    ended_job(caller)  # long ago
    shown = caller.create_job()["id"]
    start(caller, shown)
    finish(caller, shown)

    found = caller.get("/v1/usage").json()

    assert found["total"]["jobs"] == {"succeeded": 1}
    assert found["group_by"] == "day"


@pytest.mark.parametrize(
    "parameters",
    [
        {"from": "2026-03-02T00:00:00Z", "to": "2026-03-02T00:00:00Z"},
        {"from": "2026-03-02T00:00:00Z", "to": "2026-03-01T00:00:00Z"},
        {"from": "2020-01-01T00:00:00Z", "to": "2026-03-01T00:00:00Z"},
        {"from": "2999-01-01T00:00:00Z"},
        {"from": "2026-03-02T00:00:00"},
        {"to": "0001-01-01T00:00:00Z"},
        {"from": "yesterday"},
        {"group_by": "planet"},
        {"group": "day"},
    ],
)
def test_a_period_that_makes_no_sense_is_refused(
    caller: Caller, parameters: dict[str, str]
) -> None:
    answer = caller.get("/v1/usage", params=parameters)

    assert (answer.status_code, answer.json()["code"]) == (422, "validation_failed")
