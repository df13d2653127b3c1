"""The check of ended jobs that fault tests and the soak rely on sees what it is there to see."""

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.events import append_event
from app.db.session import Database
from app.db.tables import Artifact, EvaluationResult, Job, JobAttempt, JobEvent, ModelVersion
from tests.execution import Workshop
from tests.faults.consistency import violations
from tests.fixtures.database import make_project


@pytest.fixture
def done(database: Database, tmp_path: Path) -> UUID:
    """A job that succeeded at its first try."""
    workshop = Workshop(database, tmp_path)
    job_id = workshop.queue(make_project(database))
    workshop.run_next()
    return job_id


def found(session: Session, job_id: UUID) -> list[str]:
    job = session.execute(sa.select(Job).where(Job.id == job_id)).scalar_one()
    session.refresh(job)
    return list(violations(session, job))


def test_a_job_done_once_has_no_violations(database: Database, done: UUID) -> None:
    with database.read() as session:
        assert found(session, done) == []


def end_twice(session: Session, job_id: UUID) -> None:
    job = session.execute(sa.select(Job).where(Job.id == job_id)).scalar_one()
    append_event(session, job_id, "job.succeeded", now=job.created_at)


def lose_an_event(session: Session, job_id: UUID) -> None:
    session.execute(sa.delete(JobEvent).where(JobEvent.job_id == job_id, JobEvent.seq == 2))


def reopen_the_attempt(session: Session, job_id: UUID) -> None:
    session.execute(
        sa.update(JobAttempt).where(JobAttempt.job_id == job_id).values(outcome=None, ended_at=None)
    )


def write_under_an_old_fence(session: Session, job_id: UUID) -> None:
    session.execute(sa.update(Artifact).where(Artifact.job_id == job_id).values(fence=0))


def forget_a_version(session: Session, job_id: UUID) -> None:
    session.execute(
        sa.update(ModelVersion)
        .where(ModelVersion.created_by_job_id == job_id)
        .values(created_by_job_id=None)
    )


def measure_once_more(session: Session, job_id: UUID) -> None:
    session.execute(
        sa.update(EvaluationResult)
        .where(EvaluationResult.job_id == job_id, EvaluationResult.stage == "before")
        .values(stage="only")
    )


@pytest.mark.parametrize(
    "damage",
    [
        end_twice,
        lose_an_event,
        reopen_the_attempt,
        write_under_an_old_fence,
        forget_a_version,
        measure_once_more,
    ],
)
def test_damage_is_seen(
    database: Database, done: UUID, damage: Callable[[Session, UUID], None]
) -> None:
    with database.write() as session:
        damage(session, done)
        seen = found(session, done)
        session.rollback()

    assert len(seen) >= 1
