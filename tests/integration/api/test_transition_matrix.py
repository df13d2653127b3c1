"""Every request to a job in every status: allowed or refused exactly as the design says."""

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from app.db.tables import Job
from app.domain.states import AttemptOutcome, JobStatus
from tests.integration.api.callers import Caller, job_uuid
from tests.integration.api.runs import failed_job, finished_job, give_back, paused_job, start

# Columns: the statuses; written from the design, not from the code.
STATUSES = (
    "pending", "queued", "running", "cancelling", "paused", "succeeded", "failed", "cancelled",
)  # fmt: skip
EXPECTED = {
    "cancel":   (200, 200, 202, 202, 200, 409, 409, 200),
    "pause":    (409, 409, 202, 409, 200, 409, 409, 409),
    "resume":   (409, 202, 202, 409, 202, 409, 409, 409),
    "retry":    (409, 409, 409, 409, 409, 409, 202, 202),
    "delete":   (409, 409, 409, 409, 409, 204, 204, 204),
    "rename":   (200, 200, 200, 200, 200, 200, 200, 200),
    "priority": (409, 200, 409, 409, 409, 409, 409, 409),
}  # fmt: skip
BECOMES = {
    ("cancel", "pending"): "cancelled",
    ("cancel", "queued"): "cancelled",
    ("cancel", "running"): "cancelling",
    ("cancel", "paused"): "cancelled",
    ("resume", "paused"): "queued",
    ("retry", "failed"): "queued",
    ("retry", "cancelled"): "queued",
}
CASES = [
    (action, status, code)
    for action, codes in EXPECTED.items()
    for status, code in zip(STATUSES, codes, strict=True)
]


def queued(caller: Caller) -> str:
    return str(caller.create_job()["id"])


def running(caller: Caller) -> str:
    job_id = queued(caller)
    start(caller, job_id)
    return job_id


def pending(caller: Caller) -> str:
    """Written as one that waits for another job would be: nothing makes such jobs yet."""
    job_id = queued(caller)
    with caller.app.database.write() as session:
        values = {"status": "pending", "queued_at": None}
        session.execute(sa.update(Job).where(Job.id == job_uuid(job_id)).values(values))
    return job_id


def cancelling(caller: Caller) -> str:
    job_id = running(caller)
    caller.post(f"/v1/jobs/{job_id}/cancel")
    return job_id


def cancelled(caller: Caller) -> str:
    job_id = cancelling(caller)
    give_back(caller, job_id, AttemptOutcome.CANCELLED)
    return job_id


PUT_INTO: dict[str, Callable[[Caller], str]] = {
    "pending": pending,
    "queued": queued,
    "running": running,
    "cancelling": cancelling,
    "paused": paused_job,
    "succeeded": finished_job,
    "failed": failed_job,
    "cancelled": cancelled,
}


@pytest.mark.parametrize(("action", "status", "expected"), CASES)
def test_a_request_does_what_the_table_says(
    caller: Caller, action: str, status: str, expected: int
) -> None:
    job_id = PUT_INTO[status](caller)
    path = f"/v1/jobs/{job_id}"
    before = caller.get(path)
    assert before.json()["status"] == status

    if action == "delete":
        answer = caller.request("DELETE", path)
    elif action in ("rename", "priority"):
        body = {"name": "new"} if action == "rename" else {"priority": -1}
        answer = caller.request("PATCH", path, json=body)
    else:
        answer = caller.post(f"{path}/{action}")

    assert answer.status_code == expected, answer.text
    after = caller.get(path)
    if expected == 409:
        assert answer.json()["code"] == "invalid_state"
        assert status in answer.json()["detail"]
        assert after.headers["etag"] == before.headers["etag"]
    elif expected == 204:
        assert after.status_code == 404
    else:
        assert after.json()["status"] == BECOMES.get((action, status), status)
        assert after.json() == answer.json()


def test_the_table_has_a_column_for_every_status() -> None:
    assert set(STATUSES) == {status.value for status in JobStatus}
