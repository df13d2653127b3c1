"""The worker's disk: what is asked of it before a job, and what a full one does to a job."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest
import sqlalchemy as sa

from app.db.session import Database
from app.db.tables import Job, Worker
from app.domain.errors import JobErrorCode
from app.domain.sources import PathSource
from app.domain.states import JobStatus
from app.integrations.hub.cache import PIN_NAME, CommitCache
from app.schemas.jobs import RetryJobRequest
from app.services.jobs import retry_job
from app.services.model_intake import IntakeSettings, inspect_source
from app.settings import Settings
from tests.clock import FakeClock
from tests.execution import (
    Workshop,
    as_client,
    dispatch_one,
    read_attempts,
    read_events,
    read_job,
)
from tests.fixtures.database import make_project
from tests.small_disk import SIZE_BYTES, small_disk
from workers.disk import LONGEST_WAIT_S, WorkerDisk
from workers.fetch import FetchSources
from workers.runtime.checkpoints import write_point
from workers.runtime.faults import name_failure
from workers.runtime.scratch import Scratch
from workers.tasks import FIRST_DELAY_S, JobRunner

MIB = 1 << 20


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with small_disk(tmp_path, monkeypatch) as folder:
        yield folder


@pytest.fixture
def database_url(migrated_sqlite: Path, tmp_path: Path) -> str:
    """One kind of database: what is tried here is about files."""
    shutil.copy2(migrated_sqlite, tmp_path / "debias.db")
    return f"sqlite:///{tmp_path / 'debias.db'}"


@pytest.fixture
def workshop(database: Database, tmp_path: Path) -> Workshop:
    return Workshop(database, tmp_path)


@pytest.fixture
def project(database: Database) -> UUID:
    return make_project(database)


def cached(cache_dir: Path, name: str, *, used_at: int, size: int = MIB) -> CommitCache:
    commit = CommitCache(cache_dir, endpoint="hub", repo_id=name, commit="0")
    commit.put("model.safetensors", os.urandom(size))
    os.utime(commit.folder / PIN_NAME, (used_at, used_at))
    return commit


class Site:
    """A worker whose scratch folder and cache lie on a small disk."""

    def __init__(self, workshop: Workshop, project: UUID, disk: Path) -> None:
        self.workshop, self.project = workshop, project
        self.scratch, self.cache = disk / "scratch", disk / "hub-cache"

    def runner(self, **changes: Any) -> JobRunner:
        fetch = FetchSources(hub_cache_dir=self.cache, models_dir=self.workshop.models)
        services = self.workshop.services(scratch_dir=self.scratch, fetch=fetch, **changes)
        return JobRunner(services)

    def run(self, *, estimate: int = 0, capture_streams: bool = False, **config: Any) -> Job:
        """Run one job once, as a message makes a worker do."""
        database = self.workshop.database
        job_id = self.workshop.queue(self.project, **config)
        with database.write() as session:
            session.execute(
                sa.update(Job)
                .where(Job.id == job_id)
                .values(max_attempts=1, estimate={"disk_bytes": estimate})
            )
        self.offer(self.runner(capture_streams=capture_streams))
        return read_job(database, job_id)

    def offer(self, runner: JobRunner) -> bool:
        """Send the next job to a worker, whatever time it waits for."""
        with self.workshop.database.write() as session:
            now = self.workshop.database.now(session)
            session.execute(sa.update(Job).values(run_after=now))
        dispatched = dispatch_one(self.workshop.database)
        assert dispatched is not None
        return runner.run(*dispatched)

    def only_job(self) -> Job:
        with self.workshop.database.read() as session:
            return session.execute(sa.select(Job)).scalar_one()

    def left(self) -> list[str]:
        return [path.name for path in self.scratch.iterdir()] if self.scratch.exists() else []


@pytest.fixture
def site(workshop: Workshop, project: UUID, disk: Path) -> Site:
    return Site(workshop, project, disk)


# Before a job


def test_cached_models_give_way_to_a_job_the_oldest_first(site: Site) -> None:
    old = cached(site.cache, "old", used_at=1)
    new = cached(site.cache, "new", used_at=2)

    job = site.run(estimate=2 * MIB)

    assert job.status == JobStatus.SUCCEEDED
    assert (old.folder.exists(), new.folder.exists()) == (False, True)


def test_cached_model_in_use_does_not_give_way(site: Site) -> None:
    used = cached(site.cache, "used", used_at=1, size=3 * MIB)

    with used.in_use():
        job = site.run(estimate=2 * MIB)

    assert job.status == JobStatus.QUEUED
    assert used.folder.exists()


def test_cached_models_stay_where_all_of_them_would_not_be_enough(site: Site) -> None:
    models = [cached(site.cache, name, used_at=1) for name in ("a", "b")]
    site.scratch.parent.joinpath("ballast").write_bytes(bytes(3 * MIB // 2))

    job = site.run(estimate=3 * MIB)

    assert job.status == JobStatus.QUEUED
    assert [model.folder.exists() for model in models] == [True, True]


def test_only_a_cache_on_the_same_disk_gives_way(disk: Path, tmp_path: Path) -> None:
    model = cached(tmp_path / "cache", "m", used_at=1)
    (disk / "ballast").write_bytes(bytes(MIB))

    WorkerDisk(disk, SIZE_BYTES, hub_cache_dir=tmp_path / "cache").room_for()

    # Where this user may mount nothing, the small disk is a folder of the same disk.
    apart = disk.stat().st_dev != tmp_path.stat().st_dev
    assert model.folder.exists() is apart


def test_worker_without_a_job_makes_room_as_well(site: Site) -> None:
    """Too little free space keeps jobs away, so no job would come to evict for."""
    cached(site.cache, "m", used_at=1, size=3 * MIB)

    disk = WorkerDisk(site.scratch, 2 * MIB, hub_cache_dir=site.cache)

    assert disk.room_for().is_enough
    assert list(site.cache.rglob("model.safetensors")) == []


def test_folder_of_a_killed_attempt_goes_before_any_cached_model(site: Site) -> None:
    """Its child may have been alive still when the next one came and looked for such folders."""
    model = cached(site.cache, "m", used_at=1)
    abandoned = site.scratch / f"{uuid4()}-1"
    abandoned.mkdir(parents=True)
    (abandoned / "model.safetensors").write_bytes(os.urandom(2 * MIB))

    disk = WorkerDisk(site.scratch, 2 * MIB, hub_cache_dir=site.cache)

    assert disk.room_for().is_enough
    assert (abandoned.exists(), model.folder.exists()) == (False, True)


def test_folder_of_a_living_attempt_stays(site: Site) -> None:
    with Scratch(site.scratch, uuid4(), 1) as layout:
        (layout.out / "model.safetensors").write_bytes(os.urandom(3 * MIB))

        assert not WorkerDisk(site.scratch, 2 * MIB, hub_cache_dir=site.cache).room_for().is_enough

        assert layout.out.exists()


def test_job_without_room_waits_without_using_an_attempt(site: Site) -> None:
    site.scratch.parent.joinpath("ballast").write_bytes(bytes(3 * MIB))

    job = site.run(estimate=2 * MIB)

    database = site.workshop.database
    assert (JobStatus(job.status), job.attempt, job.failures) == (JobStatus.QUEUED, 0, 0)
    assert read_attempts(database, job.id) == []
    assert job.run_after > job.created_at
    warning = read_events(database, job.id)[-1]
    assert (warning.type, warning.data["code"]) == ("job.warning", "disk_low")
    assert "2.4 MiB needed" in warning.data["message"]
    assert "of 4 MiB free" in warning.data["message"]


def test_job_that_waits_for_room_says_so_once_and_runs_when_there_is_some(site: Site) -> None:
    ballast = site.scratch.parent / "ballast"
    ballast.write_bytes(bytes(3 * MIB))
    job_id = site.run(estimate=2 * MIB).id
    runner = site.runner()
    assert not site.offer(runner)
    ballast.unlink()

    assert site.offer(runner)

    database = site.workshop.database
    assert read_job(database, job_id).status == JobStatus.SUCCEEDED
    codes = [event.data.get("code") for event in read_events(database, job_id)]
    assert codes.count("disk_low") == 1


@pytest.fixture
def waiting(timed: Database, tmp_path: Path, disk: Path) -> Site:
    """A full disk, and a job that has been told to wait, under a clock of the test's."""
    disk.joinpath("ballast").write_bytes(bytes(3 * MIB))
    site = Site(Workshop(timed, tmp_path), make_project(timed), disk)
    site.run(estimate=2 * MIB)
    return site


def offer_when_due(site: Site, clock: FakeClock) -> float:
    """Offer the job at the time it waits for, and tell how long that was."""
    job = site.only_job()
    delay_s = (job.run_after - clock.now()).total_seconds()
    clock.advance(delay_s)
    site.offer(site.runner())
    return delay_s


def test_job_that_waits_for_room_is_offered_ever_more_rarely(
    waiting: Site, clock: FakeClock
) -> None:
    delays = [offer_when_due(waiting, clock) for _ in range(7)]

    assert delays == [60, 60, 120, 240, 480, 900, 900]


def test_job_that_waited_too_long_for_room_fails_with_the_numbers(
    waiting: Site, clock: FakeClock
) -> None:
    clock.advance(LONGEST_WAIT_S - 1)
    assert not waiting.offer(waiting.runner())
    assert waiting.only_job().status == JobStatus.QUEUED
    clock.advance(1)

    assert waiting.offer(waiting.runner())

    job = waiting.only_job()
    assert (job.status, job.attempt) == (JobStatus.FAILED, 1)
    assert job.error is not None
    assert job.error["code"] == JobErrorCode.DISK_FULL
    assert "2.4 MiB needed" in job.error["message"]
    assert "waited 24 h" in job.error["message"]
    assert "DEBIAS_SCRATCH_DIR" in job.error["hint"]


def test_job_that_was_retried_waits_anew(waiting: Site, clock: FakeClock) -> None:
    clock.advance(LONGEST_WAIT_S)
    waiting.offer(waiting.runner())
    job = waiting.only_job()
    with as_client(waiting.workshop.database, job.project_id) as u:
        retry_job(u, job.id, RetryJobRequest(), Settings(_env_file=None))

    assert not waiting.offer(waiting.runner())

    assert (waiting.only_job().run_after - clock.now()).total_seconds() == FIRST_DELAY_S


def test_job_that_can_never_fit_fails_with_the_numbers(site: Site) -> None:
    job = site.run(estimate=40 * MIB)

    assert job.status == JobStatus.FAILED
    assert job.error is not None
    assert job.error["code"] == JobErrorCode.DISK_FULL
    assert "48 MiB needed" in job.error["message"]
    assert "DEBIAS_SCRATCH_DIR" in job.error["hint"]


def test_job_that_can_never_fit_here_is_offered_to_other_workers(site: Site) -> None:
    database = site.workshop.database
    job_id = site.workshop.queue(site.project)
    with database.write() as session:
        session.execute(sa.update(Job).values(estimate={"disk_bytes": 40 * MIB}))

    site.offer(site.runner())

    job = read_job(database, job_id)
    assert (job.status, job.failures) == (JobStatus.QUEUED, 1)
    with database.read() as session:
        assert session.execute(sa.select(Worker.id)).scalars().all() == [site.workshop.worker.id]


# In the middle of a job


def test_full_disk_fails_the_job_and_the_worker_lives_on(site: Site) -> None:
    failed = site.run(output_bytes=3 * SIZE_BYTES)

    assert failed.status == JobStatus.FAILED
    assert failed.error is not None
    assert failed.error["code"] == JobErrorCode.DISK_FULL
    assert site.left() == []
    assert site.run().status == JobStatus.SUCCEEDED


@pytest.fixture
def large_model(workshop: Workshop, tmp_path: Path) -> None:
    """A model that is larger than the small disk; made before that limits what can be written."""
    (workshop.models / "tiny" / "README.md").write_bytes(b"x" * 2 * SIZE_BYTES)
    intake = IntakeSettings(models_dir=workshop.models, cache_dir=tmp_path / "intake")
    workshop.pinned = dict(inspect_source(PathSource("tiny"), settings=intake).pinned)


def test_full_disk_while_the_model_is_fetched(large_model: None, site: Site) -> None:
    job = site.run()

    assert job.error is not None
    assert job.error["code"] == JobErrorCode.DISK_FULL
    assert "the model does not fit" in job.error["message"]
    assert site.left() == []


def test_full_disk_while_lines_are_captured(site: Site) -> None:
    job = site.run(capture_streams=True, log_lines=60_000)

    assert job.status in (JobStatus.SUCCEEDED, JobStatus.FAILED)
    assert job.error is None or job.error["code"] == JobErrorCode.DISK_FULL
    assert site.left() == []
    assert site.run(capture_streams=True).status == JobStatus.SUCCEEDED


def test_full_disk_while_a_checkpoint_is_written(disk: Path) -> None:
    arrays = {"a": np.zeros(2 * SIZE_BYTES, np.uint8)}

    with pytest.raises(Exception, match="os error") as error:
        write_point(disk / "point", arrays, {})

    assert name_failure(error.value).code is JobErrorCode.DISK_FULL
    assert not (disk / "point").exists()
