"""Everything an attempt reports, buffered by its engine and written by its heartbeat."""

import random
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.events import Level, append_event, prune_progress
from app.db.repositories.execution import Claim, Pulse, lock_fenced, read_pulse
from app.db.repositories.outputs import MetricValue, write_metrics
from app.db.session import OUTAGE_ERRORS, Database
from app.db.tables import Job, JobAttempt
from app.dispatch.timing import Timing
from app.domain.clock import format_time
from app.domain.states import Phase
from app.domain.text import storable
from workers.runtime.devices import peak_host_bytes

PROGRESS_PERIOD_S = 2.0
METRICS_PER_WRITE = 500
# Kept in memory while the database does not answer; older points give way.
METRICS_BUFFERED = 50_000
PRUNE_EVERY = 50
UNREACHABLE = (*OUTAGE_ERRORS, OSError)

T = TypeVar("T")


class Fenced(Exception):
    """The job is no longer this attempt's: end at once and write nothing more."""


class DatabaseUnreachable(Exception):
    """The database did not answer this time."""


@dataclass(slots=True)
class _Batch:
    """What waits to be written."""

    phase: Phase | None = None
    events: list[tuple[str, dict[str, Any], Level]] = field(default_factory=list)
    progress: dict[str, Any] | None = None
    metrics: list[MetricValue] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        return self.phase is None and not (self.events or self.progress or self.metrics)


class Journal:
    """Buffer between the engine's thread and the database. All methods are thread-safe."""

    def __init__(self, database: Database, claim: Claim, timing: Timing) -> None:
        self._database = database
        self._claim = claim
        self._timing = timing
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._pending = _Batch()
        self._metrics: deque[MetricValue] = deque(maxlen=METRICS_BUFFERED)
        self._phase_began = 0.0
        self._progress_written = float("-inf")
        self._progress_events = 0
        self._phase = Phase.PREPARING
        self._warnings: list[dict[str, str]] = []
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether the outcome is written, after which there is nothing more to say."""
        return self._closed

    @property
    def phase(self) -> Phase:
        """The running phase."""
        return self._phase

    @property
    def warnings(self) -> list[dict[str, str]]:
        """All warnings so far."""
        with self._lock:
            return list(self._warnings)

    def enter_phase(self, phase: Phase) -> None:
        """Note that a phase begins."""
        with self._lock:
            self._phase = phase
            self._phase_began = self._database.clock.monotonic()
            self._pending.phase = phase
            self._pending.progress = None
            self._pending.events.append(("job.phase", {"phase": str(phase)}, "info"))

    def progress(self, step: int, total: int, message: str) -> None:
        """Note how far the running phase is."""
        now = self._database.clock
        with self._lock:
            elapsed = now.monotonic() - self._phase_began
            remaining = elapsed / step * (total - step) if 0 < step <= total else None
            self._pending.progress = {
                "fraction": min(1.0, step / total) if total > 0 else None,
                "step": step,
                "total_steps": total,
                "eta_s": None if remaining is None else round(remaining, 1),
                "message": storable(message) or None,
                "updated_at": format_time(now.now()),
            }

    def metric(self, name: str, value: float, step: int) -> None:
        """Note one point of a curve."""
        point = MetricValue(name, step, value, self._database.clock.now())
        with self._lock:
            self._metrics.append(point)

    def warn(self, code: str, message: str) -> None:
        """Note a warning, for the events and for the result."""
        with self._lock:
            warning = {"code": code, "message": storable(message)}
            self._warnings.append(warning)
            self._pending.events.append(("job.warning", dict(warning), "warning"))

    def event(self, event: str, data: Mapping[str, Any], level: Level = "info") -> None:
        """Note an event."""
        with self._lock:
            self._pending.events.append((event, dict(data), level))

    def beat(self, *, renew: bool) -> Pulse | None:
        """Write what waits, renew the lease if asked, and learn whether to stop.

        None after the outcome was written.

        Raises
        ------
        Fenced
            When the job is no longer ours.
        DatabaseUnreachable
            When it could not be asked; what waits is kept.
        """
        with self._writing:
            if self._closed:
                return None
            batch = self._take()
            try:
                return self._beat(batch, renew)
            except UNREACHABLE as exc:
                self._give_back(batch)
                raise DatabaseUnreachable(str(exc)) from exc

    def read(self, action: Callable[[Session], T]) -> T:
        """Run a query of its own. Raises `DatabaseUnreachable`."""
        try:
            with self._database.read() as session:
                return action(session)
        except UNREACHABLE as exc:
            raise DatabaseUnreachable(str(exc)) from exc

    def write(self, action: Callable[[Session, Job, datetime], T]) -> T:
        """Run `action` in one transaction under the fence, after all that waits.

        Raises `Fenced` or `DatabaseUnreachable`; in both cases `action` wrote nothing.
        """
        return self._write(action, closing=False)

    def write_aside(self, action: Callable[[Session, Job, datetime], T]) -> T:
        """Like `write`, but leave what waits to the heartbeat, which paces the progress."""
        with self._writing:
            if self._closed:
                raise Fenced
            try:
                with self._database.write() as session:
                    return action(session, *self._lock_job(session))
            except UNREACHABLE as exc:
                raise DatabaseUnreachable(str(exc)) from exc

    def close(self, action: Callable[[Session, Job, datetime], T]) -> T:
        """Like `write`, for the outcome: nothing can be written after it."""
        return self._write(action, closing=True)

    def _write(self, action: Callable[[Session, Job, datetime], T], *, closing: bool) -> T:
        self._drain()
        with self._writing:
            if self._closed:
                raise Fenced
            batch = self._take(everything=True)
            try:
                with self._database.write() as session:
                    job, now = self._lock_job(session)
                    self._write_batch(session, job, batch, now)
                    result = action(session, job, now)
            except UNREACHABLE as exc:
                self._give_back(batch)
                raise DatabaseUnreachable(str(exc)) from exc
            except Exception:
                self._give_back(batch)
                raise
            self._closed = closing
            return result

    def _drain(self) -> None:
        """Leave no more points to a transaction than one may write; others come in between."""
        while len(self._metrics) > METRICS_PER_WRITE and not self._closed:
            self.beat(renew=False)

    def patiently(self, write: Callable[[], T]) -> T:
        """Repeat a call of this journal while the database is away, for `outage_stop_s`."""
        clock, pause = self._database.clock, threading.Event()
        deadline = clock.monotonic() + self._timing.outage_stop_s
        while True:
            try:
                return write()
            except DatabaseUnreachable:
                if clock.monotonic() >= deadline:
                    raise
            pause.wait(self._timing.stop_poll_s * random.uniform(0.5, 1.5))

    def _beat(self, batch: _Batch, renew: bool) -> Pulse:
        if batch.empty and not renew:
            with self._database.read() as session:
                return self._pulse(session)
        with self._database.write() as session:
            job, now = self._lock_job(session)
            if renew:
                job.lease_expires_at = now + timedelta(seconds=self._timing.lease_ttl_s)
                session.flush()
                self._note_memory(session)
            self._write_batch(session, job, batch, now)
            return self._pulse(session)

    def _note_memory(self, session: Session) -> None:
        """Keep the peak where the parent finds it, should this process be killed."""
        session.execute(
            sa.update(JobAttempt)
            .where(JobAttempt.id == self._claim.attempt_id)
            .values(peak_rss_bytes=peak_host_bytes())
        )

    def _lock_job(self, session: Session) -> tuple[Job, datetime]:
        job = lock_fenced(session, self._claim.job_id, self._claim.fence)
        if job is None:
            raise Fenced
        return job, self._database.now(session)

    def _pulse(self, session: Session) -> Pulse:
        pulse = read_pulse(session, self._claim.job_id, self._claim.fence)
        if pulse is None:
            raise Fenced
        return pulse

    def _take(self, *, everything: bool = False) -> _Batch:
        moment = self._database.clock.monotonic()
        with self._lock:
            batch, self._pending = self._pending, _Batch()
            early = moment - self._progress_written < PROGRESS_PERIOD_S
            if batch.progress is not None and early and not everything:
                self._pending.progress, batch.progress = batch.progress, None
            count = len(self._metrics) if everything else METRICS_PER_WRITE
            while self._metrics and len(batch.metrics) < count:
                batch.metrics.append(self._metrics.popleft())
            if batch.progress is not None:
                self._progress_written = moment
            return batch

    def _give_back(self, batch: _Batch) -> None:
        with self._lock:
            pending = self._pending
            pending.events[:0] = batch.events
            pending.phase = pending.phase or batch.phase
            if pending.progress is None and pending.phase in (None, batch.phase):
                pending.progress = batch.progress
            self._metrics.extendleft(reversed(batch.metrics))

    def _write_batch(self, session: Session, job: Job, batch: _Batch, now: datetime) -> None:
        values: dict[str, Any] = {}
        if batch.phase is not None:
            values |= {"phase": batch.phase, "progress": None}
        if batch.progress is not None:
            values["progress"] = batch.progress
        if values:
            session.execute(sa.update(Job).where(Job.id == job.id).values(**values))
        for event, data, level in batch.events:
            append_event(session, job.id, event, now=now, data=data, level=level)
        if batch.progress is not None:
            append_event(session, job.id, "job.progress", now=now, data=batch.progress)
            self._progress_events += 1
            if self._progress_events % PRUNE_EVERY == 0:
                prune_progress(session, job.id)
        write_metrics(session, job.id, self._claim.attempt, batch.metrics)
        session.refresh(job)
