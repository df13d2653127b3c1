"""Decide which jobs may run now and hand them to the broker."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

import structlog

from app.crash_points import crash_point
from app.db.repositories.execution import (
    DispatchedJob,
    clear_dispatch,
    count_dispatched,
    dispatch_next,
    find_unclaimed,
    live_workers,
    lock_dispatch,
    mark_published,
)
from app.db.session import Database
from app.dispatch.broker import Broker, BrokerUnavailable
from app.dispatch.timing import Timing

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class DispatchReport:
    """What one round did: job ids by what happened to their message."""

    published: list[UUID] = field(default_factory=list)
    resent: list[UUID] = field(default_factory=list)
    refused: list[UUID] = field(default_factory=list)

    @property
    def idle(self) -> bool:
        """Whether there was nothing to do."""
        return not (self.published or self.resent or self.refused)


@dataclass(frozen=True, slots=True)
class _Slots:
    """How many jobs of a class may be handed out, and whether one of its workers is idle."""

    free: int
    any_idle: bool


class Dispatcher:
    """Feeds the broker as many jobs of each device class as live workers can take."""

    def __init__(
        self,
        database: Database,
        broker: Broker,
        *,
        timing: Timing,
        device_classes: Sequence[str],
    ) -> None:
        self._database = database
        self._broker = broker
        self._timing = timing
        self._device_classes = tuple(device_classes)

    def run_once(self) -> DispatchReport:
        """Dispatch and publish for every device class, then resend what was lost."""
        report = DispatchReport()
        for device_class in self._device_classes:
            chosen, lost = self._decide(device_class)
            self._publish(chosen, report.published, report)
            self._publish(lost, report.resent, report)
        return report

    def _decide(self, device_class: str) -> tuple[list[DispatchedJob], list[DispatchedJob]]:
        """Choose under the dispatch lock: caps and shares hold with any number of replicas."""
        with self._database.write() as session:
            lock_dispatch(session)
            now = self._database.now(session)
            seen_since = now - timedelta(seconds=self._timing.worker_timeout_s)
            slots = _count_slots(
                device_class,
                live_workers(session, seen_since=seen_since),
                count_dispatched(session),
            )
            lost: list[DispatchedJob] = []
            if slots.any_idle:
                sent_before = now - timedelta(seconds=self._timing.resend_s)
                lost = find_unclaimed(session, device_class, sent_before=sent_before)
            chosen: list[DispatchedJob] = []
            while len(chosen) < slots.free:
                job = dispatch_next(session, device_class, now=now)
                if job is None:
                    break
                chosen.append(job)
            return chosen, lost

    def _publish(
        self, jobs: Sequence[DispatchedJob], done: list[UUID], report: DispatchReport
    ) -> None:
        """Publish after the commit: a message never runs ahead of the row it stands for."""
        for position, job in enumerate(jobs):
            crash_point("dispatched", job.dispatch)
            try:
                self._broker.publish(
                    job.job_id, dispatch=job.dispatch, device_class=job.device_class
                )
            except BrokerUnavailable as exc:
                log.warning("publish_failed", job_id=str(job.job_id), reason=exc.detail)
                # A frozen broker costs seconds a message: the others would fare no better.
                self._take_back(jobs[position:])
                report.refused.extend(refused.job_id for refused in jobs[position:])
                return
            crash_point("published", job.dispatch)
            with self._database.write() as session:
                mark_published(session, job, now=self._database.now(session))
            done.append(job.job_id)

    def _take_back(self, jobs: Sequence[DispatchedJob]) -> None:
        with self._database.write() as session:
            for job in jobs:
                clear_dispatch(session, job.job_id, job.dispatch)


def _count_slots(
    device_class: str, workers: Sequence[tuple[list[str], bool]], dispatched: dict[str, int]
) -> _Slots:
    serving = [(classes, idle) for classes, idle in workers if device_class in classes]
    if not serving:
        # Nobody has reported yet: one message may wait in the queue for the first worker.
        return _Slots(free=0 if dispatched.get(device_class) else 1, any_idle=False)
    idle_count = sum(idle for _, idle in serving)
    # A worker that serves two classes is one slot for both.
    shared = {name for classes, _ in serving for name in classes}
    waiting = sum(count for name, count in dispatched.items() if name in shared)
    return _Slots(free=max(0, idle_count - waiting), any_idle=idle_count > 0)
