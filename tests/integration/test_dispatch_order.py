"""The statement that picks the next job, held against the rule it stands for."""

import itertools
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.db.repositories.execution import dispatch_next
from app.db.session import Database
from app.db.tables import Job, Project
from app.domain.clock import unix_ms
from app.domain.ids import new_id
from tests.execution import queue_job
from tests.fixtures.database import make_project


@dataclass(frozen=True)
class Tenant:
    weight: float
    max_running: int
    suspended: bool
    running: int


@dataclass(frozen=True)
class Waiting:
    tenant: int
    device_class: str
    priority: int
    age_s: int
    delayed: bool


tenants = st.builds(
    Tenant,
    weight=st.sampled_from((0.5, 1.0, 3.0)),
    max_running=st.integers(0, 3),
    suspended=st.sampled_from((False, False, False, True)),
    running=st.integers(0, 2),
)
waiting = st.builds(
    Waiting,
    tenant=st.integers(0, 2),
    device_class=st.sampled_from(("cpu", "cpu", "gpu")),
    priority=st.integers(-1, 1),
    age_s=st.integers(0, 2),
    delayed=st.sampled_from((False, False, True)),
)


@given(projects=st.lists(tenants, min_size=3, max_size=3), backlog=st.lists(waiting, max_size=12))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_jobs_are_dispatched_in_the_order_of_share_priority_and_age(
    database: Database, projects: list[Tenant], backlog: list[Waiting]
) -> None:
    ids = _write(database, projects, backlog)
    with database.write() as session:
        now = database.now(session)
        expected = _by_the_rule(session, now)
        found = []
        while (job := dispatch_next(session, "cpu", now=now)) is not None:
            found.append(job.job_id)
        session.rollback()
    _empty(database)

    assert found == expected
    assert set(found) <= ids


def _write(database: Database, projects: list[Tenant], backlog: list[Waiting]) -> set[UUID]:
    with database.read() as session:
        now = database.now(session)
    keys = [
        make_project(
            database,
            weight=project.weight,
            max_running=project.max_running,
            suspended=project.suspended,
        )
        for project in projects
    ]
    made = {
        queue_job(
            database,
            keys[job.tenant],
            device_class=job.device_class,
            priority=job.priority,
        ): job
        for job in backlog
    }
    running = [
        queue_job(database, key)
        for key, project in zip(keys, projects, strict=True)
        for _ in range(project.running)
    ]
    with database.write() as session:
        for job_id, job in made.items():
            session.execute(
                sa.update(Job)
                .where(Job.id == job_id)
                .values(
                    queued_at=now - timedelta(seconds=job.age_s),
                    run_after=now + timedelta(hours=1 if job.delayed else -1),
                )
            )
        session.execute(
            sa.update(Job)
            .where(Job.id.in_(running))
            .values(
                {"status": "running", "lease_expires_at": now, "worker_id": new_id(unix_ms(now))}
            )
        )
    return set(made)


def _by_the_rule(session: sa.orm.Session, now: object) -> list[UUID]:
    """Sort all that may run before each slot, in the words of the rule."""
    projects = {row.id: row for row in session.execute(sa.select(Project)).scalars()}
    jobs = list(session.execute(sa.select(Job)).scalars())
    held = {key: sum(job.project_id == key and job.status == "running" for job in jobs)
            for key in projects}  # fmt: skip
    left = [
        job
        for job in jobs
        if job.status == "queued" and job.device_class == "cpu" and job.run_after <= now
    ]
    order = []
    for _ in itertools.repeat(None):
        may_run = [
            job
            for job in left
            if held[job.project_id] < projects[job.project_id].max_running
            and not projects[job.project_id].suspended
        ]
        if not may_run:
            return order
        first = min(
            may_run,
            key=lambda job: (
                held[job.project_id] / projects[job.project_id].weight,
                -job.priority,
                job.queued_at,
                job.id,
            ),
        )
        order.append(first.id)
        left.remove(first)
        held[first.project_id] += 1
    return order


def _empty(database: Database) -> None:
    with database.write() as session:
        for table in ("job_events", "outbox", "jobs", "projects"):
            session.execute(sa.text(f"DELETE FROM {table}"))
