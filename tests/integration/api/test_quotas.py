"""What a project may use: refused when used up, shown to the caller, exact under concurrency."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa

from app.db.session import Database
from app.db.tables import Blob, JobAttempt, Project, Worker
from app.domain.clock import unix_ms
from app.domain.ids import new_id
from app.settings import Settings
from tests.execution import add_worker, queue_job
from tests.integration.api.callers import JOB, Caller, RunningApp
from tests.integration.api.conftest import run_app
from tests.integration.api.runs import finish, start


def limit(caller: Caller, **columns: object) -> None:
    with caller.app.database.write() as session:
        session.execute(sa.update(Project).where(Project.id == caller.project_id).values(**columns))


def add_blob(caller: Caller, size_bytes: int, *, digit: str = "a", state: str = "stored") -> None:
    with caller.app.database.write() as session:
        now = caller.app.database.now(session)
        session.add(
            Blob(
                project_id=caller.project_id,
                sha256=digit * 64,
                size_bytes=size_bytes,
                storage_key=f"p/{digit}",
                state=state,
                created_at=now,
                last_referenced_at=now,
            )
        )


def add_attempt(
    database: Database,
    project_id: UUID,
    *,
    began_s_ago: float,
    took_s: float | None,
    device: str = "cuda:0",
) -> None:
    """Insert an attempt; one without a duration still runs."""
    job_id = queue_job(database, project_id)
    with database.write() as session:
        now = database.now(session)
        began = now - timedelta(seconds=began_s_ago)
        session.add(
            JobAttempt(
                id=new_id(unix_ms(now)),
                created_at=began,
                project_id=project_id,
                job_id=job_id,
                number=1,
                fence=1,
                host="host",
                pid=1,
                device=device,
                started_at=began,
                ended_at=None if took_s is None else began + timedelta(seconds=took_s),
                outcome=None if took_s is None else "succeeded",
            )
        )


def used(caller: Caller, quota: str) -> int:
    shown: dict[str, Any] = caller.get("/v1/me").json()["quotas"][quota]
    return int(shown["used"])


def refusal(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def test_every_quota_is_shown_with_limit_and_use(app: RunningApp) -> None:
    caller = app.caller(max_queued=5, max_running=3, max_storage_bytes=10**6, max_gpu_s_per_day=60)
    caller.create_job()
    start(caller, caller.create_job()["id"])
    add_blob(caller, 120)
    add_attempt(app.database, caller.project_id, began_s_ago=100, took_s=7.5)

    me = caller.get("/v1/me").json()

    assert me["quotas"] == {
        "max_queued": {"limit": 5, "used": 2},
        "max_running": {"limit": 3, "used": 1},
        "max_storage_bytes": {"limit": 10**6, "used": 120},
        "max_gpu_s_per_day": {"limit": 60, "used": 8},
    }
    assert (me["project"]["suspended"], me["project"]["retention_days"]) == (False, 90)


def test_no_limit_is_shown_as_null(caller: Caller) -> None:
    quotas = caller.get("/v1/me").json()["quotas"]

    assert quotas["max_storage_bytes"] == {"limit": None, "used": 0}
    assert quotas["max_gpu_s_per_day"] == {"limit": None, "used": 0}


def test_a_suspended_project_reads_and_cancels_but_starts_nothing(caller: Caller) -> None:
    waiting, ended = caller.create_job()["id"], caller.create_job()["id"]
    caller.post(f"/v1/jobs/{ended}/cancel")
    limit(caller, suspended=True)

    created = caller.post("/v1/jobs", json=JOB)
    retried = caller.post(f"/v1/jobs/{ended}/retry")
    read = caller.get(f"/v1/jobs/{waiting}")

    assert [refusal(a) for a in (created, retried)] == [(403, "project_suspended")] * 2
    assert "operator" in created.json()["detail"]
    assert (read.status_code, read.json()["status"]) == (200, "queued")
    assert caller.post("/v1/jobs", json=JOB, params={"dry_run": "true"}).json()["valid"]
    assert caller.post(f"/v1/jobs/{waiting}/cancel").status_code == 200
    limit(caller, suspended=False)
    assert caller.post("/v1/jobs", json=JOB).status_code == 202


def estimated_bytes(caller: Caller) -> int:
    answer = caller.post("/v1/jobs/estimate", json=JOB).json()
    return int(answer["estimate"]["output_bytes"])


def test_a_job_is_taken_up_to_the_last_byte_of_storage_and_not_beyond(caller: Caller) -> None:
    needed = estimated_bytes(caller)
    add_blob(caller, 1000)

    limit(caller, max_storage_bytes=1000 + needed - 1)
    refused = caller.post("/v1/jobs", json=JOB)
    limit(caller, max_storage_bytes=1000 + needed)
    taken = caller.post("/v1/jobs", json=JOB)

    assert needed > 0
    assert refusal(refused) == (429, "quota_exceeded")
    detail = refused.json()["detail"]
    assert all(part in detail for part in ("max_storage_bytes", str(999 + needed), "1000 are used"))
    assert "retry-after" not in refused.headers
    assert taken.status_code == 202


def test_a_used_up_storage_refuses_retries_too(caller: Caller) -> None:
    job_id = caller.create_job()["id"]
    caller.post(f"/v1/jobs/{job_id}/cancel")
    add_blob(caller, 10)
    limit(caller, max_storage_bytes=10)

    retried = caller.post(f"/v1/jobs/{job_id}/retry")

    assert refusal(retried) == (429, "quota_exceeded")


def test_bytes_that_several_artifacts_share_count_once(caller: Caller) -> None:
    for _ in range(2):
        job_id = caller.create_job()["id"]
        start(caller, job_id)
        finish(caller, job_id, files={"report.json": b"{}", "report.md": b"# same"})

    assert used(caller, "max_storage_bytes") == len(b"{}") + len(b"# same")


@pytest.mark.parametrize("state", ["deleting", "deleted"])
def test_bytes_that_go_or_are_gone_do_not_count(caller: Caller, state: str) -> None:
    add_blob(caller, 5)
    add_blob(caller, 500, digit="b", state=state)

    assert used(caller, "max_storage_bytes") == 5


def test_bytes_of_others_do_not_count(app: RunningApp) -> None:
    rich, poor = app.caller(), app.caller(max_storage_bytes=10**6)
    add_blob(rich, 10**9)

    assert used(poor, "max_storage_bytes") == 0
    assert poor.post("/v1/jobs", json=JOB).status_code == 202


def post_with_limit(settings: Settings, max_model_bytes: int) -> Any:
    limited = settings.model_copy(update={"max_model_bytes": max_model_bytes})
    with run_app(limited) as app:
        return app.caller().post("/v1/jobs", json=JOB)


def test_a_model_is_taken_up_to_the_last_byte_of_the_services_limit_and_not_beyond(
    sqlite_settings: Settings,
) -> None:
    assert sqlite_settings.models_dir is not None
    size = sum(path.stat().st_size for path in (sqlite_settings.models_dir / "tiny").iterdir())

    taken, refused = (post_with_limit(sqlite_settings, limit) for limit in (size, size - 1))

    assert taken.status_code == 202
    assert refusal(refused) == (429, "quota_exceeded")
    detail = refused.json()["detail"]
    assert f"{size} bytes; {size - 1} is" in detail
    assert "Choose a smaller model" in detail
    assert "DEBIAS_MAX_MODEL_BYTES" in detail
    assert "retry-after" not in refused.headers


@pytest.fixture
def accelerated(app: RunningApp) -> None:
    """A GPU worker that takes jobs of the class cpu, too, and no other worker."""
    with app.database.write() as session:
        session.execute(sa.update(Worker).values(state="stopped"))
    add_worker(app.database, classes=("gpu", "cpu"), device="cuda:0")


@pytest.mark.usefixtures("accelerated")
def test_used_up_accelerator_time_refuses_jobs_that_could_use_more(caller: Caller) -> None:
    add_attempt(caller.app.database, caller.project_id, began_s_ago=50, took_s=30)
    limit(caller, max_gpu_s_per_day=31)
    taken = caller.post("/v1/jobs", json=JOB)
    add_attempt(caller.app.database, caller.project_id, began_s_ago=1, took_s=None)

    refused = caller.post("/v1/jobs", json=JOB)

    assert taken.status_code == 202
    assert refusal(refused) == (429, "quota_exceeded")
    assert "max_gpu_s_per_day" in refused.json()["detail"]


def test_used_up_accelerator_time_leaves_jobs_that_cannot_use_any(caller: Caller) -> None:
    with caller.app.database.write() as session:
        session.execute(sa.update(Worker).values(state="stopped"))
    add_worker(caller.app.database, device="cpu")
    add_attempt(caller.app.database, caller.project_id, began_s_ago=50, took_s=30)
    limit(caller, max_gpu_s_per_day=1)

    assert caller.post("/v1/jobs", json=JOB).status_code == 202


DAY_S = 24 * 3600


@pytest.mark.parametrize(
    ("attempt", "counted"),
    [
        ({"began_s_ago": 100, "took_s": 40.0}, 40),
        ({"began_s_ago": 100, "took_s": 40.0, "device": "cpu"}, 0),
        ({"began_s_ago": DAY_S + 100, "took_s": 40.0}, 0),
        ({"began_s_ago": DAY_S + 100, "took_s": 400.0}, 300),
    ],
    ids=["whole", "on-the-cpu", "before-the-window", "across-its-edge"],
)
def test_accelerator_time_of_the_last_day_counts(
    caller: Caller, attempt: dict[str, Any], counted: int
) -> None:
    add_attempt(caller.app.database, caller.project_id, **attempt)

    # The window moves between two readings of the clock.
    assert counted - 2 <= used(caller, "max_gpu_s_per_day") <= counted


def test_time_of_a_running_attempt_counts_up_to_now(caller: Caller) -> None:
    add_attempt(caller.app.database, caller.project_id, began_s_ago=500, took_s=None)

    assert 500 <= used(caller, "max_gpu_s_per_day") < 560


def test_monitoring_counts_storage_as_the_quota_does(caller: Caller) -> None:
    add_blob(caller, 5)
    add_blob(caller, 500, digit="b", state="deleted")
    name = caller.get("/v1/me").json()["project"]["name"]

    text = caller.app.client.get("/metrics").text

    assert f'debias_storage_bytes{{project="{name}"}} 5.0' in text
