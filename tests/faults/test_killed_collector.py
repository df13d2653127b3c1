"""The garbage collector killed at each of its points, and crashes that leave garbage behind."""

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from uuid import UUID

import httpx
import pytest
import sqlalchemy as sa

from app.db.session import Database
from app.db.tables import Blob, Job, JobCheckpoint, JobLogChunk
from app.dispatch.gc.collector import Collector
from app.services.store_check import check_store
from app.storage.objects import open_store
from tests.execution import Workshop, read_job
from tests.faults.rig import create, embedded_service, rows_of, running, uuid_of, wait_for_end
from tests.fixtures.database import make_project
from tests.retention import NO_GRACE, age, artifacts_of, backdate, files_below

POINTS = (
    "gc_expired",
    "gc_logs_deleted",
    "gc_purged",
    "gc_marked",
    "gc_bytes_deleted",
    "gc_swept",
)
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
ORPHAN_LOG = "p/prj_x/logs/job_x/att_x/stdout/1.ndjson.gz"


@dataclass
class Household:
    """A home with every kind of garbage, and two jobs that must lose nothing."""

    home: Path
    expired: UUID
    deleted: UUID
    kept: UUID
    fresh: UUID

    @cached_property
    def database(self) -> Database:
        return Database(f"sqlite:///{self.home / 'debias.db'}", pooled=False)

    @classmethod
    def build(cls, home: Path) -> "Household":
        database = Database(f"sqlite:///{home / 'debias.db'}")
        workshop = Workshop(database, home)
        project = make_project(database)

        def finished(**outputs: str) -> UUID:
            job_id = workshop.queue(project, outputs=outputs, log_lines=5)
            workshop.run_next(capture_streams=True)
            assert read_job(database, job_id).status == "succeeded"
            return job_id

        # All hold the same bytes: what dies with the one must live on with the other.
        found = cls(home, finished(), finished(), finished(register_as="fair"), finished())
        with database.write() as session:
            session.get_one(Job, found.deleted).deleted_at = database.now(session)
        workshop.store.put_bytes(ORPHAN_LOG, b"x")
        (home / "objects" / f"{ORPHAN_LOG}#123").write_bytes(b"cut off")
        for job_id in (found.expired, found.deleted):
            age(database, job_id, 91)
        backdate(home / "objects", LONG_AGO)
        database.dispose()
        return found

    def copy_to(self, home: Path) -> "Household":
        shutil.copytree(self.home, home, dirs_exist_ok=True)
        return replace(self, home=home)

    def collect(self, fault: str = "") -> int:
        environment = {"PATH": os.environ["PATH"], "DEBIAS_HOME": str(self.home)}
        return subprocess.run(
            [sys.executable, "-m", "app.cli.main", "gc"],
            env=environment | {"DEBIAS_FAULT": fault},
            check=False,
            timeout=60,
            capture_output=True,
        ).returncode

    def assert_nothing_lives_but_the_living(self) -> None:
        store = open_store((self.home / "objects").as_uri())
        checked = check_store(self.database, store, digests=True, grace=NO_GRACE.grace)
        assert (checked.broken, checked.orphans) == ((), ())
        for job_id in (self.kept, self.fresh):
            assert all(row.deleted_at is None for row in artifacts_of(self.database, job_id))
        assert all(row.deleted_at for row in artifacts_of(self.database, self.expired))
        with self.database.read() as session:
            jobs = session.execute(sa.select(Job.id)).scalars().all()
            assert set(jobs) == {self.expired, self.kept, self.fresh}
            logged = session.execute(sa.select(JobLogChunk.job_id).distinct()).scalars().all()
            assert set(logged) == {self.kept, self.fresh}
            assert not session.execute(sa.select(JobCheckpoint.id)).all()
        digests = {
            row.sha256
            for job_id in (self.kept, self.fresh)
            for row in artifacts_of(self.database, job_id)
        }
        stored = {path.name.partition(".")[0] for path in self._files("blobs")}
        assert stored == digests
        assert not list((self.home / "objects").rglob("*#*"))

    def _files(self, kind: str) -> list[Path]:
        return [path for path in files_below(self.home / "objects") if kind in path.parts]


@pytest.fixture(scope="module")
def template(migrated_sqlite: Path, tmp_path_factory: pytest.TempPathFactory) -> Household:
    home = tmp_path_factory.mktemp("household")
    shutil.copy2(migrated_sqlite, home / "debias.db")
    return Household.build(home)


@pytest.fixture
def household(template: Household, tmp_path: Path) -> Household:
    return template.copy_to(tmp_path)


def test_one_run_leaves_nothing_but_the_living(household: Household) -> None:
    assert household.collect() == 0

    household.assert_nothing_lives_but_the_living()


@pytest.mark.parametrize("point", POINTS)
def test_the_run_after_a_killed_one_ends_its_work(household: Household, point: str) -> None:
    assert household.collect(point) == -signal.SIGKILL

    assert household.collect() == 0

    household.assert_nothing_lives_but_the_living()


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_an_api_killed_while_it_collects_ends_its_work_when_it_is_back(
    template: Household, tmp_path: Path, point: str
) -> None:
    """It collects as it starts, so it dies before it is ready; the next one starts and is well."""
    service = embedded_service(tmp_path, DEBIAS_FAULT=point)
    household = template.copy_to(service.home)
    for role in service.roles:
        service.start_role(role)
    assert service.processes["serve"].wait(60) == -signal.SIGKILL

    with running(embedded_service(tmp_path)) as again:
        done = httpx.post(f"{again.url}/v1/admin/gc", timeout=60)
        assert done.json()["complete"]

        household.assert_nothing_lives_but_the_living()


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("uploading", marks=pytest.mark.slow),
        "uploaded",
        pytest.param("committed", marks=pytest.mark.slow),
    ],
)
def test_a_crash_around_the_upload_leaves_nothing_that_is_not_collected(
    tmp_path: Path, point: str
) -> None:
    with running(embedded_service(tmp_path, DEBIAS_FAULT=f"{point}:1")) as service:
        job_id = create(service)
        assert wait_for_end(service, job_id)["status"] == "succeeded"

    store = open_store((service.home / "objects").as_uri())
    with rows_of(service) as database:
        Collector(database, store, periods=NO_GRACE).run_once()

        checked = check_store(database, store, digests=True, grace=NO_GRACE.grace)
        assert (checked.broken, checked.orphans) == ((), ())
        held = {row.sha256 for row in artifacts_of(database, uuid_of(job_id))}
        with database.read() as session:
            assert set(session.execute(sa.select(Blob.sha256)).scalars()) == held
