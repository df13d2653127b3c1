import hashlib
import json
import threading
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
import sqlalchemy as sa
from safetensors.numpy import load_file, save_file

from app.catalog.registry import MethodRegistry
from app.db.session import Database
from app.db.tables import (
    Artifact,
    Blob,
    EvaluationResult,
    Job,
    JobCheckpoint,
    Model,
    ModelFile,
    ModelVersion,
)
from app.db.transition import transition
from app.domain.states import Actor, JobStatus
from app.schemas.jobs import JobRequest
from tests.execution import (
    ProcessEnded,
    Workshop,
    claim_next,
    dispatch_one,
    read_attempts,
    read_events,
    read_job,
)
from tests.fixtures.database import make_project
from workers.attempt.publish import Publisher
from workers.attempt.run import Attempt
from workers.attempt.services import EXIT_FENCED
from workers.runtime.context import Context, PhaseOutput
from workers.tasks import JobRunner
from workers.testkit.fake_method import Engine
from workers.testkit.models import write_tiny_model

ARTIFACTS = {
    "checkpoint/config.json",
    "checkpoint/model.safetensors",
    "plots/steps.json",
    "plots/steps.png",
    "report.html",
    "report.json",
    "request.json",
    "resolved_spec.json",
}


@pytest.fixture
def workshop(database: Database, tmp_path: Path) -> Workshop:
    return Workshop(database, tmp_path)


@pytest.fixture
def project(database: Database) -> UUID:
    return make_project(database)


def rows(database: Database, table: type, job_id: UUID) -> list:
    with database.read() as session:
        return list(session.execute(sa.select(table).where(table.job_id == job_id)).scalars())


def digest_of_checkpoint(database: Database, job_id: UUID) -> str:
    found = [a for a in rows(database, Artifact, job_id) if a.name.endswith(".safetensors")]
    assert len(found) == 1
    return found[0].sha256


def cancel_running(database: Database, job_id: UUID) -> None:
    with database.write() as session:
        assert transition(
            session,
            job_id,
            JobStatus.RUNNING,
            JobStatus.CANCELLING,
            Actor.API,
            now=database.now(session),
            values={"stop_requested": "cancel"},
        )


def test_a_job_that_succeeds_has_its_result_and_all_its_artifacts(
    workshop: Workshop, project: UUID
) -> None:
    job_id = workshop.queue(project, warnings=1)

    workshop.run_next()

    job = read_job(workshop.database, job_id)
    assert (job.status, job.error) == ("succeeded", None)
    assert job.result["metrics"]["delta"] == {"fake_bias": -1.0}
    assert [warning["code"] for warning in job.result["warnings"]] == ["fake_warning"]
    assert {a.name for a in rows(workshop.database, Artifact, job_id)} == ARTIFACTS
    assert [a.outcome for a in read_attempts(workshop.database, job_id)] == ["succeeded"]


def test_a_job_that_succeeds_ends_at_its_whole_without_a_message(
    workshop: Workshop, project: UUID
) -> None:
    job_id = workshop.queue(project)

    workshop.run_next()

    progress = read_job(workshop.database, job_id).progress
    assert (progress["fraction"], progress["message"]) == (1.0, None)


def test_every_artifact_lies_in_the_store_under_its_hash(workshop: Workshop, project: UUID) -> None:
    job_id = workshop.queue(project)

    workshop.run_next()

    with workshop.database.read() as session:
        blobs = {blob.sha256: blob for blob in session.execute(sa.select(Blob)).scalars()}
    for artifact in rows(workshop.database, Artifact, job_id):
        data = workshop.store.get_range(blobs[artifact.sha256].storage_key, 0, artifact.size_bytes)
        assert hashlib.sha256(data).hexdigest() == artifact.sha256


def test_events_are_gapless_and_end_with_the_success(workshop: Workshop, project: UUID) -> None:
    job_id = workshop.queue(project)

    workshop.run_next()

    events = read_events(workshop.database, job_id)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert events[-1].type == "job.succeeded"
    phases = [event.data["phase"] for event in events if event.type == "job.phase"]
    assert phases == [
        "preparing",
        "evaluating_before",
        "debiasing",
        "evaluating_after",
        "packaging",
        "uploading",
    ]


def test_evaluations_of_both_stages_are_stored_once(workshop: Workshop, project: UUID) -> None:
    job_id = workshop.queue(project)

    workshop.run_next()

    stored = rows(workshop.database, EvaluationResult, job_id)
    assert {(row.stage, row.metric, row.value) for row in stored} == {
        ("before", "fake_bias", 2.0),
        ("after", "fake_bias", 1.0),
    }


def test_evaluations_before_the_edit_are_there_even_if_the_edit_fails(
    workshop: Workshop, project: UUID
) -> None:
    job_id = workshop.queue(project, trouble="fail")

    workshop.run_next()

    assert [row.stage for row in rows(workshop.database, EvaluationResult, job_id)] == ["before"]


def test_registered_outputs_get_consecutive_numbers(workshop: Workshop, project: UUID) -> None:
    for _ in range(2):
        workshop.queue(project, outputs={"register_as": "fair"})
        workshop.run_next()

    with workshop.database.read() as session:
        numbers = session.execute(sa.select(ModelVersion.number)).scalars().all()
        names = session.execute(sa.select(Model.name)).scalars().all()
        paths = session.execute(sa.select(ModelFile.path).distinct()).scalars().all()
    assert sorted(numbers) == [1, 2]
    assert names == ["fair"]
    assert sorted(paths) == ["config.json", "model.safetensors"]


def test_the_resolved_spec_is_an_artifact_and_so_is_the_request_that_repeats_it(
    workshop: Workshop, project: UUID
) -> None:
    job_id = workshop.queue(project)

    workshop.run_next()

    spec = read_job(workshop.database, job_id).resolved_spec
    assert content_of(workshop, job_id, "resolved_spec.json") == spec
    request = JobRequest.model_validate(content_of(workshop, job_id, "request.json"))
    assert (request.method, request.seed) == (spec["method"], spec["seed"])
    assert request.config == spec["config"]


def content_of(workshop: Workshop, job_id: UUID, name: str) -> Any:
    found = {a.name: a for a in rows(workshop.database, Artifact, job_id)}[name]
    with workshop.database.read() as session:
        key = session.execute(
            sa.select(Blob.storage_key).where(Blob.sha256 == found.sha256)
        ).scalar_one()
    return json.loads(workshop.store.get_range(key, 0, found.size_bytes))


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"trouble": "exception"}, "internal"),
        ({"trouble": "oom_device"}, "oom_device"),
        ({"trouble": "disk_full"}, "disk_full"),
        ({"trouble": "nan", "trouble_phase": "evaluating_before"}, "numerical_failure"),
        ({"trouble": "fail", "fail_code": "reload_failed"}, "reload_failed"),
    ],
)
def test_a_failure_that_would_come_again_fails_the_job_with_its_code(
    workshop: Workshop, project: UUID, config: dict[str, str], code: str
) -> None:
    job_id = workshop.queue(project, **config)

    workshop.run_next()

    job = read_job(workshop.database, job_id)
    assert (job.status, job.error["code"]) == ("failed", code)
    assert job.error["phase"] == config.get("trouble_phase", "debiasing")
    assert job.error["hint"]
    assert not rows(workshop.database, Artifact, job_id)


def test_a_retryable_failure_is_repeated_until_the_attempts_are_used_up(
    workshop: Workshop, project: UUID
) -> None:
    job_id = workshop.queue(project, trouble="fail", fail_retryable=True)

    statuses = []
    for _ in range(3):
        workshop.run_next()
        statuses.append(read_job(workshop.database, job_id).status)

    assert statuses == ["queued", "queued", "failed"]
    assert [a.outcome for a in read_attempts(workshop.database, job_id)] == ["failed"] * 3


def test_a_host_that_runs_out_of_memory_twice_is_not_tried_again(
    workshop: Workshop, project: UUID
) -> None:
    job_id = workshop.queue(project, trouble="oom_host")

    for _ in range(2):
        workshop.run_next()

    job = read_job(workshop.database, job_id)
    assert (job.status, job.attempt, job.error["code"]) == ("failed", 2, "oom_host")


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each time that the engine measures the base model."""
    calls: list[int] = []
    evaluate = Engine.evaluate_before

    def counted(self: Engine, ctx: Context) -> PhaseOutput:
        calls.append(1)
        return evaluate(self, ctx)

    monkeypatch.setattr(Engine, "evaluate_before", counted)
    return calls


def test_a_retry_skips_finished_evaluations_and_gives_the_same_model(
    workshop: Workshop, project: UUID, evaluated: list[int]
) -> None:
    workshop.queue(project)
    undisturbed = workshop.run_next().job_id
    evaluated.clear()
    job_id = workshop.queue(
        project, trouble="fail", trouble_step=2, trouble_times=1, fail_retryable=True
    )

    workshop.run_next()
    workshop.run_next()

    assert read_job(workshop.database, job_id).status == "succeeded"
    assert evaluated == [1]
    assert digest_of_checkpoint(workshop.database, job_id) == digest_of_checkpoint(
        workshop.database, undisturbed
    )


def test_a_retry_from_the_start_uses_nothing_of_the_earlier_attempts(
    workshop: Workshop, project: UUID, evaluated: list[int]
) -> None:
    job_id = workshop.queue(project, trouble="fail", fail_retryable=True)
    workshop.run_next()
    with workshop.database.write() as session:
        session.execute(sa.update(Job).where(Job.id == job_id).values(restart_from="start"))

    workshop.run_next()

    assert evaluated == [1, 1]


def test_state_of_another_engine_version_is_not_used(
    workshop: Workshop, project: UUID, evaluated: list[int]
) -> None:
    job_id = workshop.queue(project, trouble="fail", fail_retryable=True)
    workshop.run_next()
    with workshop.database.write() as session:
        session.execute(sa.update(JobCheckpoint).values(engine_version="fake@0.9.0"))

    workshop.run_next()

    assert evaluated == [1, 1]
    warnings = [
        event.data["code"]
        for event in read_events(workshop.database, job_id)
        if event.type == "job.warning"
    ]
    assert "checkpoint_outdated" in warnings


def test_two_points_inside_a_phase_are_kept_while_the_job_is_alive(
    workshop: Workshop, project: UUID
) -> None:
    job_id = workshop.queue(project, steps=6, trouble="fail", trouble_step=6, fail_retryable=True)

    workshop.run_next()

    live = [
        point.step
        for point in rows(workshop.database, JobCheckpoint, job_id)
        if point.deleted_at is None and point.step is not None
    ]
    assert sorted(live) == [4, 5]


def test_checkpoints_go_with_success(workshop: Workshop, project: UUID) -> None:
    job_id = workshop.queue(project)

    workshop.run_next()

    points = rows(workshop.database, JobCheckpoint, job_id)
    assert points
    assert all(point.deleted_at is not None for point in points)


def test_a_cancel_stops_the_engine_and_keeps_nothing(workshop: Workshop, project: UUID) -> None:
    job_id = workshop.queue(project, wait_for=str(workshop.folder / "never"))
    claimed = claim_next(workshop.database, workshop.worker)
    cancel_running(workshop.database, job_id)

    Attempt(workshop.services(), claimed).run()

    job = read_job(workshop.database, job_id)
    assert (job.status, job.error) == ("cancelled", None)
    assert not rows(workshop.database, Artifact, job_id)
    assert [a.outcome for a in read_attempts(workshop.database, job_id)] == ["cancelled"]


def test_a_cancel_wins_over_a_success_that_is_being_committed(
    workshop: Workshop, project: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = workshop.queue(project)
    upload = Publisher.upload

    def upload_then_cancel(self: Publisher, *args: object, **options: object) -> object:
        stored = upload(self, *args, **options)  # type: ignore[arg-type]
        cancel_running(workshop.database, job_id)
        return stored

    monkeypatch.setattr(Publisher, "upload", upload_then_cancel)

    workshop.run_next()

    job = read_job(workshop.database, job_id)
    assert (job.status, job.result) == ("cancelled", None)
    assert not rows(workshop.database, Artifact, job_id)


def test_a_fenced_attempt_changes_nothing_and_ends_its_process(
    workshop: Workshop, project: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = workshop.queue(project)
    upload = Publisher.upload

    def upload_then_lose(self: Publisher, *args: object, **options: object) -> object:
        stored = upload(self, *args, **options)  # type: ignore[arg-type]
        with workshop.database.write() as session:
            session.execute(sa.update(Job).where(Job.id == job_id).values(fence=Job.fence + 1))
        return stored

    monkeypatch.setattr(Publisher, "upload", upload_then_lose)

    with pytest.raises(ProcessEnded) as ended:
        workshop.run_next()

    assert ended.value.code == EXIT_FENCED
    assert read_job(workshop.database, job_id).status == "running"
    assert not rows(workshop.database, Artifact, job_id)


def test_a_draining_worker_gives_the_job_back_without_using_an_attempt(
    workshop: Workshop, project: UUID
) -> None:
    job_id = workshop.queue(project, wait_for=str(workshop.folder / "never"))
    attempt = Attempt(workshop.services(), claim_next(workshop.database, workshop.worker))
    attempt.drain()

    attempt.run()

    job = read_job(workshop.database, job_id)
    assert (job.status, job.failures, job.error) == ("queued", 0, None)
    assert [a.outcome for a in read_attempts(workshop.database, job_id)] == ["drained"]


def test_the_child_of_a_dead_worker_gives_the_job_back(workshop: Workshop, project: UUID) -> None:
    job_id = workshop.queue(project, wait_for=str(workshop.folder / "never"))

    workshop.run_next(is_orphaned=lambda: True)

    assert read_job(workshop.database, job_id).status == "queued"


def test_the_run_time_limit_ends_the_job_for_good(workshop: Workshop, project: UUID) -> None:
    job_id = workshop.queue(project, wait_for=str(workshop.folder / "never"))
    with workshop.database.write() as session:
        session.execute(sa.update(Job).where(Job.id == job_id).values(max_runtime_s=0))

    workshop.run_next()

    job = read_job(workshop.database, job_id)
    assert (job.status, job.error["code"]) == ("failed", "timeout")


def test_scratch_is_gone_when_the_attempt_is(workshop: Workshop, project: UUID) -> None:
    workshop.queue(project)

    workshop.run_next(scratch_dir=workshop.folder / "scratch")

    assert list((workshop.folder / "scratch").iterdir()) == []


def test_a_model_that_changed_since_the_request_fails_the_job(
    workshop: Workshop, project: UUID
) -> None:
    job_id = workshop.queue(project)
    weights = workshop.models / "tiny" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"abcd")

    workshop.run_next()

    job = read_job(workshop.database, job_id)
    assert (job.status, job.error["code"]) == ("failed", "model_changed")


def test_a_method_version_that_the_worker_lacks_fails_the_job(
    workshop: Workshop, project: UUID
) -> None:
    job_id = workshop.queue(project)

    workshop.run_next(registry=MethodRegistry([]))

    assert read_job(workshop.database, job_id).error["code"] == "config_invalid"


def test_a_low_disk_gives_the_job_back_without_claiming_it(
    workshop: Workshop, project: UUID
) -> None:
    job_id = workshop.queue(project)
    dispatched = dispatch_one(workshop.database)
    assert dispatched is not None

    ran = JobRunner(workshop.services(scratch_min_free_bytes=2**62)).run(*dispatched)

    job = read_job(workshop.database, job_id)
    assert not ran
    assert (job.status, job.attempt, job.dispatched_at) == ("queued", 0, None)
    assert job.run_after > job.queued_at


def test_weights_that_are_no_numbers_are_a_warning(workshop: Workshop, project: UUID) -> None:
    damaged = workshop.models / "damaged"
    write_tiny_model(damaged)
    weights = load_file(damaged / "model.safetensors")
    name = sorted(weights)[0]
    weights[name].flat[0] = np.nan
    save_file(weights, damaged / "model.safetensors")
    workshop.pin("damaged")
    job_id = workshop.queue(project)

    workshop.run_next()

    job = read_job(workshop.database, job_id)
    warnings = [w for w in job.result["warnings"] if w["code"] == "nonfinite_weights"]
    assert (job.status, len(warnings)) == ("succeeded", 1)
    assert warnings[0]["message"].startswith("1 weights of the model are NaN or infinite, in 1 ")
    assert name in warnings[0]["message"]
    assert [
        event.level
        for event in read_events(workshop.database, job_id)
        if event.data.get("code") == "nonfinite_weights"
    ] == ["warning"]


def test_a_database_that_is_away_while_the_model_is_fetched_ends_no_job(
    workshop: Workshop, project: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = workshop.queue(project)
    workshop.run_next()
    files = [
        {"path": a.name.removeprefix("checkpoint/"), "size": a.size_bytes, "sha256": a.sha256}
        for a in rows(workshop.database, Artifact, first)
        if a.name.startswith("checkpoint/")
    ]
    workshop.pinned = {"type": "version", "version_id": "mv_any", "files": files}
    job_id = workshop.queue(project)
    engine, failures = workshop.database.engine, iter(range(3))
    read, connect = workshop.store.get_range, engine.raw_connection

    def connect_at_times() -> sa.PoolProxiedConnection:
        # The heartbeat of another thread has means of its own.
        if threading.current_thread() is threading.main_thread():
            for _ in failures:
                raise sa.exc.OperationalError("SELECT", {}, Exception("away"))
        return connect()

    def read_before_the_outage(key: str, start: int, end: int) -> bytes:
        monkeypatch.setattr(engine, "raw_connection", connect_at_times)
        return read(key, start, end)

    monkeypatch.setattr(workshop.store, "get_range", read_before_the_outage)

    workshop.run_next()

    assert next(failures, None) is None
    assert read_job(workshop.database, job_id).status == "succeeded"
