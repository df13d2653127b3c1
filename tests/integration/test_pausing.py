"""A paused job frees its worker, costs no attempt, and ends as if nothing had happened."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest
import sqlalchemy as sa

from app.catalog.registry import load_registry
from app.db.repositories.execution import lock_fenced
from app.db.session import Database
from app.db.tables import Artifact, Job, JobCheckpoint
from app.dispatch.endings import Ending, EndingWriter, worker_lost
from app.domain.states import Actor, AttemptOutcome, Phase
from app.services.jobs import cancel_job, pause_job, resume_job
from app.settings import Settings
from tests.execution import (
    FAKE,
    TIMING,
    Workshop,
    as_client,
    claim_next,
    dispatch_one,
    read_attempts,
    read_events,
    read_job,
)
from tests.fixtures.database import make_project
from tests.service import wait_for
from workers.attempt.context import AttemptContext

METHODS = load_registry([FAKE])


@pytest.fixture
def workshop(database: Database, tmp_path: Path) -> Workshop:
    return Workshop(database, tmp_path)


@pytest.fixture
def project(database: Database) -> UUID:
    return make_project(database)


def pause(workshop: Workshop, project: UUID, job_id: UUID) -> None:
    with as_client(workshop.database, project) as client:
        pause_job(client, job_id, METHODS)


def resume(workshop: Workshop, project: UUID, job_id: UUID) -> None:
    with as_client(workshop.database, project) as client:
        resume_job(client, job_id, Settings(_env_file=None))


def digests(workshop: Workshop, job_id: UUID) -> dict[str, str]:
    """Hashes of the files that follow from the work alone, not from the job's name."""
    with workshop.database.read() as session:
        rows = session.execute(
            sa.select(Artifact.name, Artifact.sha256).where(Artifact.job_id == job_id)
        )
        return {name: sha256 for name, sha256 in rows if not name.startswith("re")}


def live_steps(workshop: Workshop, job_id: UUID) -> list[int | None]:
    with workshop.database.read() as session:
        points = sa.select(JobCheckpoint.step).where(
            JobCheckpoint.job_id == job_id, JobCheckpoint.deleted_at.is_(None)
        )
        return list(session.execute(points).scalars())


@contextmanager
def at_step(phase: Phase, step: int, action: Callable[[], None]) -> Iterator[None]:
    """Do `action` once, when an engine has come to that step, and let the attempt learn of it."""
    report = AttemptContext.progress
    pending = [action]

    def report_and_act(ctx: AttemptContext, done: int, total: int, message: str = "") -> None:
        report(ctx, done, total, message)
        if pending and (ctx._journal.phase, done) == (phase, step):
            pending.pop()()
            wait_for(ctx.should_stop, timeout_s=30, what="the attempt to learn of the pause")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AttemptContext, "progress", report_and_act)
        yield
    assert not pending


@pytest.mark.parametrize("phase", [Phase.EVALUATING_BEFORE, Phase.DEBIASING, Phase.PACKAGING])
def test_a_job_goes_on_from_where_it_was_paused_to_the_same_files(
    workshop: Workshop, project: UUID, phase: Phase
) -> None:
    undisturbed = workshop.queue(project, steps=5)
    workshop.run_next()
    job_id = workshop.queue(project, steps=5)

    with at_step(phase, 3, lambda: pause(workshop, project, job_id)):
        workshop.run_next()
    paused = read_job(workshop.database, job_id)
    assert dispatch_one(workshop.database) is None
    resume(workshop, project, job_id)
    workshop.run_next()

    assert (paused.status, paused.stop_requested, paused.failures) == ("paused", None, 0)
    assert (paused.phase, paused.worker_id) == (None, workshop.worker.id)
    assert digests(workshop, job_id) == digests(workshop, undisturbed)
    attempts = read_attempts(workshop.database, job_id)
    assert [attempt.outcome for attempt in attempts] == ["paused", "succeeded"]
    assert attempts[1].resumed_from is not None
    assert read_job(workshop.database, job_id).failures == 0


def test_a_pause_withdrawn_too_late_costs_a_new_claim_and_nothing_else(
    workshop: Workshop, project: UUID
) -> None:
    job_id = workshop.queue(project, steps=5)

    def pause_and_think_again() -> None:
        pause(workshop, project, job_id)
        threading.Timer(2 * TIMING.stop_poll_s, resume, (workshop, project, job_id)).start()

    with at_step(Phase.DEBIASING, 3, pause_and_think_again):
        workshop.run_next()
    wait_for(
        lambda: "job.resumed" in [e.type for e in read_events(workshop.database, job_id)],
        timeout_s=30,
        what="the job to be resumed",
    )
    workshop.run_next()

    assert read_job(workshop.database, job_id).status == "succeeded"


def test_a_worker_that_dies_before_it_could_pause_does_not_forget_it(
    workshop: Workshop, project: UUID
) -> None:
    job_id = workshop.queue(project, wait_for=str(workshop.folder / "never"))
    claimed = claim_next(workshop.database, workshop.worker)
    pause(workshop, project, job_id)
    with workshop.database.write() as session:
        job = lock_fenced(session, job_id, claimed.fence)
        assert job is not None
        now = workshop.database.now(session)
        lost = Ending(AttemptOutcome.LOST, worker_lost("It died."))
        EndingWriter(TIMING).end(session, job, lost, by=Actor.REAPER, now=now)

    assert read_job(workshop.database, job_id).stop_requested == "pause"
    workshop.run_next()

    job = read_job(workshop.database, job_id)
    assert (job.status, job.failures) == ("paused", 1)


@pytest.mark.parametrize("keep", [False, True])
def test_a_cancel_of_a_paused_job_drops_its_checkpoints_unless_asked_to_keep_them(
    workshop: Workshop, project: UUID, keep: bool
) -> None:
    job_id = workshop.queue(project, steps=5)
    with at_step(Phase.DEBIASING, 3, lambda: pause(workshop, project, job_id)):
        workshop.run_next()
    assert 3 in live_steps(workshop, job_id)

    with as_client(workshop.database, project) as client:
        cancel_job(client, job_id, keep_checkpoint=keep)

    assert bool(live_steps(workshop, job_id)) is keep


def test_a_job_cancelled_after_its_worker_died_keeps_no_checkpoints(
    workshop: Workshop, project: UUID
) -> None:
    job_id = workshop.queue(project, steps=5, trouble="fail", trouble_step=4, fail_retryable=True)
    workshop.run_next()
    assert live_steps(workshop, job_id)
    with workshop.database.write() as session:
        session.get_one(Job, job_id).run_after = workshop.database.now(session)
    claimed = claim_next(workshop.database, workshop.worker)
    with as_client(workshop.database, project) as client:
        cancel_job(client, job_id, keep_checkpoint=False)

    with workshop.database.write() as session:
        job = lock_fenced(session, job_id, claimed.fence)
        assert job is not None
        lost = Ending(AttemptOutcome.LOST, worker_lost("It died."))
        now = workshop.database.now(session)
        EndingWriter(TIMING).end(session, job, lost, by=Actor.REAPER, now=now)

    assert not live_steps(workshop, job_id)
