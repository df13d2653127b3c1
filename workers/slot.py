"""The worker's row, and what the Celery parent writes when a child dies.

The parent holds nothing across a fork: each of these writes opens and closes one connection, on
the main thread and with short timeouts. A SQLite connection held across the fork lost four
committed rows when the WAL was unlinked (measured).
"""

import os
import platform
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import sqlalchemy as sa
import structlog
from sqlalchemy.orm import Session

from app.db.events import add_to_outbox
from app.db.repositories.execution import WorkerIdentity, clear_dispatch
from app.db.session import Database
from app.db.tables import Job, JobAttempt, Worker
from app.db.transition import DISPATCH_TOPIC
from app.dispatch.endings import Ending, EndingWriter, worker_lost
from app.dispatch.timing import Timing
from app.domain.clock import unix_ms
from app.domain.errors import JobFailure
from app.domain.ids import new_id
from app.domain.states import LEASED, Actor, AttemptOutcome, JobStatus
from workers.runtime.devices import device_memory_bytes
from workers.runtime.faults import (
    host_out_of_memory,
    memory_limit_bytes,
    oom_kills,
    parse_worker_loss,
)
from workers.runtime.scratch import free_bytes

log = structlog.get_logger()

PARENT_TIMEOUT_S = 2
# Memory use that makes a kill by signal 9 the kernel's, where it keeps no count of its kills.
NEAR_LIMIT = 0.95
SIGKILL = 9


@dataclass(frozen=True, slots=True)
class SlotFacts:
    """What does not change while the worker lives."""

    classes: Sequence[str]
    scratch_dir: Path
    scratch_min_free_bytes: int


def open_parent_database(url: str) -> Database:
    """Open the database as a process that forks may: no pool, short timeouts."""
    return Database(
        url,
        pooled=False,
        connect_timeout_s=PARENT_TIMEOUT_S,
        answer_timeout_s=PARENT_TIMEOUT_S,
    )


class WorkerSlot:
    """One device slot: this worker's row, kept up to date by the Celery parent."""

    def __init__(self, database: Database, facts: SlotFacts, timing: Timing) -> None:
        self._database = database
        self._facts = facts
        self._timing = timing
        self._endings = EndingWriter(timing)
        self._oom_kills = oom_kills()
        self._passed_by_since: float | None = None
        now = database.clock.now()
        self.identity = WorkerIdentity(new_id(unix_ms(now)), socket.gethostname(), os.getpid())

    def forget_predecessors(self) -> None:
        """Mark rows of killed workers of this host, so that no job is meant for them."""
        with self._database.write() as session:
            rows = session.execute(
                sa.select(Worker).where(
                    Worker.host == self.identity.host,
                    Worker.state.in_(("ready", "draining")),
                )
            ).scalars()
            for row in rows:
                if row.boot_id != _boot_id() or not psutil.pid_exists(row.pid):
                    row.state = "lost"

    def child_ready(self, session: Session, device: str, *, now: datetime) -> None:
        """Write that a fresh child waits for a job: from now on this worker is a free slot.

        Not earlier: a message sent to a child that is about to end waits for up to 5 s, until
        Celery's pool looks after it again (measured, one task per child).
        """
        values = {"current_job_id": None, "last_seen_at": now}
        known = session.execute(
            sa.update(Worker)
            .where(Worker.id == self.identity.id)
            .values(**values)
            .returning(Worker.id)
        ).scalar_one_or_none()
        if known is None:
            session.add(self._row(device, now))
            log.info("worker_registered", worker=str(self.identity.id), device=device)
        add_to_outbox(session, DISPATCH_TOPIC, self.identity.id, now=now)

    def report(self, *, state: str | None = None) -> bool:
        """Write that the worker lives, and its state where that changes.

        Returns
        -------
        bool
            Whether an operator has asked this worker to drain.
        """
        with self._database.write() as session:
            now = self._database.now(session)
            values: dict[str, Any] = {"last_seen_at": now, **self._disk()}
            # A worker marked as lost that is here after all says so itself.
            values["state"] = state or sa.case(
                (Worker.state == "lost", "ready"), else_=Worker.state
            )
            asked = session.execute(
                sa.update(Worker)
                .where(Worker.id == self.identity.id)
                .values(**values)
                .returning(Worker.drain_requested)
            ).scalar_one_or_none()
            return bool(asked)

    def is_overlooked(self) -> bool:
        """Tell whether this worker sits idle although a message has long been waiting for it.

        Celery workers have been reported to stay connected but stop consuming after a Redis
        reconnect (celery#8030, #8091, #8384): only a restart helps. One look is not enough:
        after an outage of the database every message is old, and was perhaps never sent.
        """
        with self._database.read() as session:
            waiting_since = self._database.now(session) - timedelta(
                seconds=self._timing.worker_timeout_s
            )
            passed_by = self._is_passed_by(session, waiting_since)
        now = self._database.clock.monotonic()
        if not passed_by:
            self._passed_by_since = None
            return False
        if self._passed_by_since is None:
            self._passed_by_since = now
        return now - self._passed_by_since >= self._timing.resend_s / 2

    def _is_passed_by(self, session: Session, waiting_since: datetime) -> bool:
        waiting = sa.exists().where(
            Job.status == JobStatus.QUEUED,
            Job.dispatched_at < waiting_since,
            Job.published_at.is_not(None),
            Job.device_class.in_(self._facts.classes),
        )
        idle = sa.exists().where(Worker.id == self.identity.id, Worker.current_job_id.is_(None))
        return bool(session.execute(sa.select(waiting & idle)).scalar_one())

    def child_lost(self, job_id: UUID, dispatch: int, message: str) -> JobStatus | None:
        """End the attempt of a child that died, at once and with what is known.

        Only if the job is still that attempt's: a child that ended because it was fenced must
        not fail the newer attempt.
        """
        exit_code, signal_number = parse_worker_loss(message)
        with self._database.write() as session:
            now = self._database.now(session)
            if clear_dispatch(session, job_id, dispatch):
                return JobStatus.QUEUED
            held = self._lock_held(session, Job.id == job_id, Job.dispatch == dispatch)
            if not held:
                return None
            job = held[0]
            failure = self._explain(session, job, exit_code, signal_number)
            ending = Ending(AttemptOutcome.LOST, failure, exit_code=exit_code, signal=signal_number)
            status = self._endings.end(session, job, ending, by=Actor.WORKER, now=now)
        log.warning("child_lost", job_id=str(job_id), reason=message, becomes=str(status))
        return status

    def leave(self) -> None:
        """Mark the row as stopped, and give back a job whose child could not do so itself."""
        with self._database.write() as session:
            now = self._database.now(session)
            # More than one where the end of an earlier child's job could not be written.
            for job in self._lock_held(session):
                ending = Ending(AttemptOutcome.DRAINED)
                self._endings.end(session, job, ending, by=Actor.WORKER, now=now)
            session.execute(
                sa.update(Worker)
                .where(Worker.id == self.identity.id)
                .values(state="stopped", last_seen_at=now, current_job_id=None)
            )

    def _lock_held(self, session: Session, *where: sa.ColumnElement[bool]) -> Sequence[Job]:
        """Lock the jobs that this worker holds a lease on."""
        statement = (
            sa.select(Job)
            .where(Job.worker_id == self.identity.id, Job.status.in_(LEASED), *where)
            .order_by(Job.id)
            .with_for_update()
        )
        return session.execute(statement).scalars().all()

    def _explain(
        self, session: Session, job: Job, exit_code: int | None, signal_number: int | None
    ) -> JobFailure:
        if signal_number == SIGKILL and self._was_out_of_memory(session, job):
            return host_out_of_memory("The kernel killed the job: the host ran out of memory.")
        if signal_number is not None:
            return worker_lost(f"The process of the job was ended by signal {signal_number}.")
        return worker_lost(f"The process of the job ended with exit code {exit_code}.")

    def _was_out_of_memory(self, session: Session, job: Job) -> bool:
        before, self._oom_kills = self._oom_kills, oom_kills()
        if before is not None and self._oom_kills is not None and self._oom_kills > before:
            return True
        peak = session.execute(
            sa.select(JobAttempt.peak_rss_bytes).where(
                JobAttempt.job_id == job.id, JobAttempt.fence == job.fence
            )
        ).scalar_one_or_none()
        limit = memory_limit_bytes() or psutil.virtual_memory().total
        return peak is not None and peak >= NEAR_LIMIT * limit

    def _row(self, device: str, now: datetime) -> Worker:
        return Worker(
            id=self.identity.id,
            created_at=now,
            host=self.identity.host,
            boot_id=_boot_id(),
            pid=self.identity.pid,
            classes=list(self._facts.classes),
            device=device,
            gpu_bytes=device_memory_bytes(device),
            host_bytes=memory_limit_bytes() or psutil.virtual_memory().total,
            versions=_versions(),
            state="ready",
            last_seen_at=now,
            **self._disk(),
        )

    def _disk(self) -> dict[str, Any]:
        free = free_bytes(self._facts.scratch_dir)
        return {
            "disk_free_bytes": free,
            "disk_low": free < self._facts.scratch_min_free_bytes,
        }


def _boot_id() -> str:
    """Tell one boot of this host from another; pids mean nothing across them."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return str(int(psutil.boot_time()))


def _versions() -> Mapping[str, str]:
    return {
        "evenhand": version("evenhand"),
        "python": platform.python_version(),
        "celery": version("celery"),
    }
