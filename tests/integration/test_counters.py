"""Counters of monitoring never fall, whatever becomes of the rows they are made of."""

from pathlib import Path
from uuid import UUID

import pytest

from app.db.session import Database
from app.db.tables import Job
from app.db.uow import unit_of_work
from app.domain.states import JobStatus
from app.schemas.jobs import RetryJobRequest
from app.security.scopes import Principal
from app.services.jobs import retry_job
from app.services.measures import measure_service
from app.settings import Settings
from tests.execution import Workshop, read_job
from tests.fixtures.database import make_project
from tests.retention import age, collector

Labels = tuple[str, ...]


@pytest.fixture
def workshop(database: Database, tmp_path: Path) -> Workshop:
    return Workshop(database, tmp_path)


@pytest.fixture
def project(database: Database) -> UUID:
    return make_project(database)


def counters(database: Database) -> dict[Labels, float]:
    """Every counter that is made of rows, by its name and labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for sample in measure_service(database)
        if sample.name.endswith("_total")
    }


def failed_job(workshop: Workshop, project: UUID) -> UUID:
    job_id = workshop.queue(project, trouble="fail")
    workshop.run_next()
    assert read_job(workshop.database, job_id).status == JobStatus.FAILED
    return job_id


def test_a_job_that_is_tried_again_counts_each_of_its_ends(
    workshop: Workshop, project: UUID, tmp_path: Path
) -> None:
    job_id = failed_job(workshop, project)
    before = counters(workshop.database)

    principal = Principal(project, None, frozenset())
    with unit_of_work(workshop.database, principal, write=True) as u:
        retry_job(u, job_id, RetryJobRequest(), Settings(home=tmp_path))

    assert counters(workshop.database) == before
    workshop.run_next()
    assert counters(workshop.database) == {labels: 2 * value for labels, value in before.items()}


def test_jobs_that_are_purged_count_on(workshop: Workshop, project: UUID) -> None:
    job_ids = [failed_job(workshop, project) for _ in range(2)]
    workshop.queue(project)
    workshop.run_next()
    before = counters(workshop.database)
    gc = collector(workshop.database, workshop.store)

    for job_id in job_ids:  # one after the other: the second adds to what is kept of the first
        with workshop.database.write() as session:
            session.get_one(Job, job_id).deleted_at = workshop.database.now(session)
        age(workshop.database, job_id, 8)
        gc.run_once()

    with workshop.database.read() as session:
        assert [session.get(Job, job_id) for job_id in job_ids] == [None, None]
    assert counters(workshop.database) == before
    assert before["debias_attempts_total", "failed"] == 2
    assert sum(v for k, v in before.items() if k[0] == "debias_jobs_finished_total") == 3
