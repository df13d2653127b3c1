"""What retention frees and what it leaves, on jobs that were really run."""

from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.repositories import blobs
from app.db.session import Database
from app.db.tables import Blob, Job, JobCheckpoint, ModelFile, ModelVersion, Project
from app.dispatch.gc.collector import Collector
from app.domain.states import JobStatus
from app.services.store_check import check_store
from tests.execution import Workshop, claim_next, queue_job, read_job
from tests.fixtures.database import make_project
from tests.retention import (
    age,
    artifacts_of,
    blob_states,
    bytes_below,
    collector,
    faults_of,
    files_below,
)


@pytest.fixture
def workshop(database: Database, tmp_path: Path) -> Workshop:
    return Workshop(database, tmp_path)


@pytest.fixture
def project(database: Database) -> UUID:
    return make_project(database)


@pytest.fixture
def objects(workshop: Workshop) -> Path:
    return workshop.folder / "objects"


@pytest.fixture
def gc(workshop: Workshop) -> Collector:
    return collector(workshop.database, workshop.store)


def finished(workshop: Workshop, project: UUID, **options: object) -> UUID:
    job_id = workshop.queue(project, **options)  # type: ignore[arg-type]
    workshop.run_next()
    assert read_job(workshop.database, job_id).status == JobStatus.SUCCEEDED
    return job_id


def version_of(database: Database, job_id: UUID) -> UUID:
    with database.read() as session:
        statement = sa.select(ModelVersion.id).where(ModelVersion.created_by_job_id == job_id)
        return session.execute(statement).scalar_one()


def count(database: Database, table: type) -> int:
    with database.read() as session:
        return session.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()


def delete(database: Database, job_id: UUID) -> None:
    with database.write() as session:
        session.get_one(Job, job_id).deleted_at = database.now(session)


def test_a_fresh_job_loses_its_dead_checkpoints_only(
    workshop: Workshop, project: UUID, gc: Collector
) -> None:
    job_id = finished(workshop, project)

    freed = gc.run_once().freed

    assert {kind for kind, part in freed.items() if part.rows} == {"checkpoints", "blobs"}
    assert set(blob_states(workshop.database)) == {"stored"}
    assert faults_of(workshop) == []
    ended = read_job(workshop.database, job_id).finished_at
    assert ended is not None
    announced = {row.expires_at for row in artifacts_of(workshop.database, job_id)}
    assert announced == {ended + timedelta(days=90)}


def test_the_bytes_of_an_expired_job_are_given_back_to_the_disk(
    workshop: Workshop, project: UUID, objects: Path, gc: Collector
) -> None:
    job_id = finished(workshop, project)
    full = bytes_below(objects)
    age(workshop.database, job_id, 91)

    promised = gc.run_once(dry_run=True)
    assert bytes_below(objects) == full
    report = gc.run_once()

    assert full > 50_000
    assert bytes_below(objects) == 0
    assert report.freed == promised.freed
    assert report.freed["blobs"].size_bytes > 2000
    rows = artifacts_of(workshop.database, job_id)
    ended = read_job(workshop.database, job_id).finished_at
    assert ended is not None
    assert {row.expires_at for row in rows} == {ended + timedelta(days=90)}
    assert all(row.deleted_at is not None for row in rows)
    assert set(blob_states(workshop.database)) == {"deleted"}
    assert faults_of(workshop) == []
    assert gc.run_once().total.rows == 0


def test_a_registered_version_keeps_all_files_of_its_job(
    workshop: Workshop, project: UUID, objects: Path, gc: Collector
) -> None:
    job_id = finished(workshop, project, outputs={"register_as": "fair"})
    gc.run_once()  # the checkpoints go
    kept = files_below(objects)
    age(workshop.database, job_id, 3650)

    gc.run_once()

    assert files_below(objects) == kept
    assert [row.expires_at for row in artifacts_of(workshop.database, job_id)] == [None] * 8
    assert faults_of(workshop) == []


def test_another_retention_takes_effect_and_is_announced(
    workshop: Workshop, project: UUID, objects: Path, gc: Collector
) -> None:
    job_id = finished(workshop, project)
    age(workshop.database, job_id, 10)
    ended = read_job(workshop.database, job_id).finished_at
    assert ended is not None
    before = artifacts_of(workshop.database, job_id)[0].version

    set_retention(workshop.database, project, 11)
    gc.run_once()
    announced = artifacts_of(workshop.database, job_id)
    assert {row.expires_at for row in announced} == {ended + timedelta(days=11)}
    assert announced[0].version == before + 1  # its ETag is another
    assert files_below(objects) != []

    set_retention(workshop.database, project, 9)
    gc.run_once()
    assert {row.expires_at for row in artifacts_of(workshop.database, job_id)} == {
        ended + timedelta(days=9)
    }
    assert files_below(objects) == []


def set_retention(database: Database, project: UUID, days: int) -> None:
    with database.write() as session:
        session.execute(sa.update(Project).where(Project.id == project).values(retention_days=days))


def test_a_project_that_keeps_longer_is_not_emptied_with_another(
    workshop: Workshop, project: UUID, gc: Collector
) -> None:
    """They hold the same bytes, each its own."""
    brief = make_project(workshop.database, retention_days=1)
    long_job, brief_job = finished(workshop, project), finished(workshop, brief)
    age(workshop.database, long_job, 30)
    age(workshop.database, brief_job, 30)

    gc.run_once()

    assert all(row.deleted_at is None for row in artifacts_of(workshop.database, long_job))
    assert all(row.deleted_at for row in artifacts_of(workshop.database, brief_job))
    assert faults_of(workshop) == []


def test_bytes_that_a_younger_job_shares_stay(
    workshop: Workshop, project: UUID, gc: Collector
) -> None:
    old, young = finished(workshop, project), finished(workshop, project)
    age(workshop.database, old, 91)

    gc.run_once()

    assert all(row.deleted_at for row in artifacts_of(workshop.database, old))
    assert faults_of(workshop) == []
    digest = {row.name: row.sha256 for row in artifacts_of(workshop.database, young)}
    with workshop.database.read() as session:
        blob = session.get_one(Blob, (project, digest["checkpoint/model.safetensors"]))
    assert blob.state == "stored"


def test_bytes_that_expired_come_back_with_a_job_that_makes_them_again(
    workshop: Workshop, project: UUID, gc: Collector
) -> None:
    age(workshop.database, finished(workshop, project), 91)
    gc.run_once()

    again = finished(workshop, project)

    assert faults_of(workshop) == []
    gc.run_once()
    assert faults_of(workshop) == []
    assert all(row.deleted_at is None for row in artifacts_of(workshop.database, again))


@pytest.mark.parametrize("deleted", [False, True])
def test_the_model_that_a_waiting_job_will_work_on_stays_until_it_has_ended(
    workshop: Workshop, project: UUID, gc: Collector, deleted: bool
) -> None:
    job_id = finished(workshop, project)
    version = version_of(workshop.database, job_id)
    waiting = queue_job(workshop.database, project, model_version_id=version)
    if deleted:
        delete(workshop.database, job_id)
    age(workshop.database, job_id, 91)

    gc.run_once()
    assert count(workshop.database, ModelFile) > 0
    assert faults_of(workshop) == []

    with workshop.database.write() as session:
        session.execute(
            sa.update(Job)
            .where(Job.id == waiting)
            .values(status=JobStatus.CANCELLED, finished_at=workshop.database.now(session))
        )
    gc.run_once()
    assert count(workshop.database, ModelFile) == 0


@pytest.mark.parametrize("register_as", [None, "fair"])
def test_a_deleted_job_is_purged_after_a_week_with_all_that_is_its_own(
    workshop: Workshop, project: UUID, objects: Path, gc: Collector, register_as: str | None
) -> None:
    outputs = {"register_as": register_as, "keep_checkpoints": 1}
    job_id = finished(workshop, project, outputs=outputs, checkpoint_every=1)
    delete(workshop.database, job_id)
    age(workshop.database, job_id, 6.9)
    gc.run_once()
    assert count(workshop.database, Job) == 1

    age(workshop.database, job_id, 0.2)
    gc.run_once()

    rows = {
        table.__name__: count(workshop.database, table)
        for table in (Job, JobCheckpoint, ModelVersion, Blob)
    }
    kept = len(files_below(objects))
    if register_as is None:
        assert rows == {"Job": 0, "JobCheckpoint": 0, "ModelVersion": 0, "Blob": 0}
        assert bytes_below(objects) == 0
    else:
        files = count(workshop.database, ModelFile)
        assert rows == {"Job": 0, "JobCheckpoint": 0, "ModelVersion": 1, "Blob": files}
        assert kept == files > 0
    assert faults_of(workshop) == []


def test_checkpoints_of_a_failed_job_stay_for_a_retry_until_its_time_is_over(
    workshop: Workshop, project: UUID, gc: Collector
) -> None:
    job_id = workshop.queue(project, trouble="fail")
    workshop.run_next()
    assert read_job(workshop.database, job_id).status == JobStatus.FAILED
    gc.run_once()
    assert count(workshop.database, JobCheckpoint) > 0

    age(workshop.database, job_id, 91)
    gc.run_once()

    assert count(workshop.database, JobCheckpoint) == 0
    assert list(blob_states(workshop.database)) == []


def test_nothing_younger_than_a_living_attempt_is_touched(
    workshop: Workshop, project: UUID, objects: Path, gc: Collector
) -> None:
    """Its uploads have no row yet, or a row that nothing refers to."""
    workshop.queue(project)
    claim_next(workshop.database, workshop.worker, lease_ttl_s=3600)
    workshop.store.put_bytes("p/prj_x/logs/job_x/att_x/stdout/1.ndjson.gz", b"on its way")

    assert gc.run_once().total.rows == 0

    with workshop.database.write() as session:
        session.execute(
            sa.update(Job).values(
                status="cancelled",
                lease_expires_at=None,
                finished_at=workshop.database.now(session),
            )
        )
    assert gc.run_once().freed["unknown_objects"].rows == 1
    assert files_below(objects) == []


def test_what_is_not_a_blob_or_a_log_is_somebody_elses(
    workshop: Workshop, objects: Path, gc: Collector
) -> None:
    workshop.store.put_bytes("health/probe", b"ok")
    workshop.store.put_bytes("p/prj_x/other/1", b"ok")

    gc.run_once()

    assert len(files_below(objects)) == 2


def test_a_run_with_no_time_left_stops_and_the_next_goes_on(
    workshop: Workshop, project: UUID, objects: Path, gc: Collector
) -> None:
    age(workshop.database, finished(workshop, project), 91)

    first = gc.run_once(budget_s=0)
    assert not first.complete
    second = gc.run_once()

    assert second.complete
    assert files_below(objects) == []


def test_the_check_names_what_is_lost_and_what_is_left_over(
    workshop: Workshop, project: UUID, objects: Path, gc: Collector
) -> None:
    finished(workshop, project)
    gc.run_once()
    lost, short, changed = sorted(files_below(objects))[:3]
    lost.unlink()
    short.write_bytes(short.read_bytes()[:-1])
    changed.write_bytes(b"x" * changed.stat().st_size)
    workshop.store.put_bytes("p/prj_x/logs/job_x/att_x/stdout/1.ndjson.gz", b"whose?")

    found = check_store(workshop.database, workshop.store, digests=True, grace=timedelta(0))

    assert sorted(fault.split(" ")[-1] for fault in found.broken) != []
    assert [lost.name in fault and "is missing" in fault for fault in found.broken].count(True) == 1
    assert [short.name in f and "instead of" in f for f in found.broken].count(True) == 1
    assert [changed.name in f and "another SHA-256" in f for f in found.broken].count(True) == 1
    assert len(found.broken) == 3
    assert [orphan.split(" ")[1] for orphan in found.orphans] == [
        "p/prj_x/logs/job_x/att_x/stdout/1.ndjson.gz"
    ]


def test_dead_bytes_are_looked_for_while_others_write_and_judged_anew(
    workshop: Workshop, project: UUID, gc: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = finished(workshop, project)
    age(workshop.database, job_id, 91)
    database, find = workshop.database, blobs.find_dead
    renewed: list[str] = []

    def find_and_be_overtaken(
        session: Session, *, before: datetime, limit: int
    ) -> list[tuple[UUID, str]]:
        found = find(session, before=before, limit=limit)
        if found and not renewed:
            project_id, sha256 = found[0]
            with database.write() as writer:
                blobs.renew_blob(writer, project_id, sha256, now=database.now(writer))
            renewed.append(sha256)
        return found

    monkeypatch.setattr(blobs, "find_dead", find_and_be_overtaken)

    gc.run_once()

    with database.read() as session:
        states = session.execute(sa.select(Blob.sha256, Blob.state)).all()
    assert [sha256 for sha256, state in states if state == "stored"] == renewed
    assert renewed
