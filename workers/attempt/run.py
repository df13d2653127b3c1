"""Run one claimed job to its outcome."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any

import structlog
from sqlalchemy.orm import Session

from app.crash_points import crash_point
from app.db.repositories.execution import Claim
from app.db.tables import Job
from app.dispatch.endings import Ending, EndingWriter
from app.domain.errors import JobFailure
from app.domain.ids import IdPrefix, format_id
from app.domain.states import Actor, AttemptOutcome, Phase
from workers.attempt.journal import DatabaseUnreachable, Fenced, Journal
from workers.attempt.log_shipping import LogShipper
from workers.attempt.outcomes import ending_for_stop, failed
from workers.attempt.patient_store import PatientStore
from workers.attempt.phases import Controls, PhaseRunner
from workers.attempt.publish import CancelWins, Publication, Publisher
from workers.attempt.services import (
    EXIT_FENCED,
    EXIT_OUTAGE,
    EXIT_STOPPED,
    AttemptServices,
    project_key,
)
from workers.heartbeat import Activity, Heartbeat, Limits, StopCause, StopSwitch
from workers.runtime.context import Stopped
from workers.runtime.devices import peak_device_bytes, peak_host_bytes
from workers.runtime.faults import name_failure
from workers.runtime.logs import LogFiles, capture
from workers.runtime.scratch import Scratch, ScratchLayout

log = structlog.get_logger()


class Attempt:
    """One attempt: engine in the calling thread, heartbeat and log shipper beside it."""

    def __init__(self, services: AttemptServices, claim: Claim) -> None:
        clock = services.database.clock
        self._services = services
        self._claim = claim
        self._clock = clock
        self._began = clock.monotonic()
        self._journal = Journal(services.database, claim, services.timing)
        self._switch = StopSwitch(clock)
        self._activity = Activity(clock)
        project = project_key(claim.project_id)
        self._storage = PatientStore(services.store, project, self._switch, journal=self._journal)
        self._endings = EndingWriter(services.timing)
        resources = claim.resolved_spec["resources"]
        self._limits = Limits(claim.max_runtime_s, resources["stall_timeout_s"])
        self._heartbeat = Heartbeat(
            self._journal,
            self._switch,
            self._activity,
            limits=self._limits,
            timing=services.timing,
            clock=clock,
            give_up=self._give_up,
            is_orphaned=self._has_to_leave,
        )
        self._told_to_drain = False
        self._shipper: LogShipper | None = None
        self._runner: PhaseRunner | None = None

    def run(self) -> None:
        """Do the work and write the outcome. Job errors are data: none is raised."""
        self._heartbeat.start()
        try:
            self._run()
        finally:
            self._heartbeat.stop()

    def refuse(self, failure: JobFailure) -> None:
        """End the attempt before it began, with the reason."""
        log.warning("attempt_refused", job_id=str(self._claim.job_id), code=str(failure.code))
        self._settle(lambda: self._end(failed(failure)))

    def drain(self) -> None:
        """Ask for a stop that gives the job back. Takes no lock: a signal handler may call it."""
        self._told_to_drain = True

    def _has_to_leave(self) -> bool:
        return self._told_to_drain or self._services.is_orphaned()

    def _run(self) -> None:
        claim = self._claim
        scratch = Scratch(self._services.scratch_dir, claim.job_id, claim.fence)
        try:
            with scratch as layout, self._logs(layout):
                log.info("attempt_began", job_id=str(claim.job_id), attempt=claim.attempt)
                self._settle(lambda: self._work(layout))
        except OSError as exc:  # no room for the scratch folder, or no right to make it
            log.exception("scratch_failed", job_id=str(claim.job_id))
            failure = name_failure(exc)
            if not self._journal.closed:
                self._settle(lambda: self._end(failed(failure)))

    def _settle(self, action: Callable[[], None]) -> None:
        """Do what writes the outcome; end the process where it cannot be written any more."""
        try:
            action()
        except Fenced:
            self._leave_fenced()
        except DatabaseUnreachable:
            self._services.exit_now(EXIT_OUTAGE)

    def _work(self, layout: ScratchLayout) -> None:
        try:
            self._succeed(layout)
        except CancelWins:
            self._end(Ending(AttemptOutcome.CANCELLED))
        except Stopped:
            self._end(self._ending_when_stopped())
        except (Fenced, DatabaseUnreachable):
            raise
        except BaseException as exc:  # whatever an engine raises is data, once in the log
            log.exception("attempt_failed", job_id=str(self._claim.job_id))
            self._end(failed(name_failure(exc)))

    def _succeed(self, layout: ScratchLayout) -> None:
        controls = Controls(
            self._journal, self._switch, self._activity, self._storage, self._heartbeat.wake
        )
        runner = PhaseRunner(self._services, self._claim, layout, controls)
        self._runner = runner
        result = runner.run()
        runner.enter(Phase.UPLOADING)
        publisher = Publisher(self._storage, self._journal, self._claim)
        artifacts = publisher.upload(
            layout.out, should_stop=self._switch.is_set, on_progress=self._show_upload
        )
        runner.finish_timing()
        stored = sum(artifact.blob.size_bytes for artifact in artifacts)
        publication = Publication(runner.spec, result, self._measured(), self._usage(stored))
        log.info("attempt_finished", job_id=str(self._claim.job_id), artifacts=len(artifacts))
        self._ship_last_lines()
        publisher.commit(publication, artifacts, layout.out)

    def _show_upload(self, done: int, total: int, name: str) -> None:
        self._activity.touch()
        self._journal.progress(done, total, name)

    def _ending_when_stopped(self) -> Ending:
        cause = self._switch.cause
        if cause is None:
            return failed(name_failure(RuntimeError("the engine stopped without being asked")))
        return ending_for_stop(cause, self._limits, self._journal.phase)

    def _end(self, ending: Ending) -> None:
        """Write an outcome other than success; wait for a database that is away."""
        self._ship_last_lines()
        if self._switch.cause is StopCause.OUTAGE:
            self._close(ending)
            return
        self._journal.patiently(lambda: self._close(ending))

    def _close(self, ending: Ending) -> None:
        measured = replace(ending, measured=self._measured())

        def write(session: Session, job: Job, now: datetime) -> None:
            if self._runner is not None:
                job.usage = self._usage(0)
            status = self._endings.end(session, job, measured, by=Actor.WORKER, now=now)
            log.info("attempt_ended", outcome=str(ending.outcome), becomes=str(status))
            crash_point("ending", self._claim.attempt)

        self._journal.close(write)
        crash_point("ended", self._claim.attempt)

    def _give_up(self, cause: StopCause | None) -> None:
        """End the process from the heartbeat's thread: the engine does not react any more."""
        if self._journal.closed:
            return
        if cause is None:
            self._leave_fenced()
        try:
            log.error("engine_did_not_stop", cause=str(cause))
            self._end(self._ending_when_stopped())
        except (Fenced, DatabaseUnreachable):
            log.exception("outcome_not_written")
        self._services.exit_now(EXIT_STOPPED)

    def _leave_fenced(self) -> None:
        log.warning("fenced", job_id=str(self._claim.job_id), fence=self._claim.fence)
        self._services.exit_now(EXIT_FENCED)

    def _measured(self) -> dict[str, Any]:
        """Columns of the attempt's row."""
        runner = self._runner
        return {
            "peak_rss_bytes": peak_host_bytes(),
            "peak_gpu_bytes": peak_device_bytes(self._services.device),
            "phase_seconds": dict(runner.phase_seconds) if runner else None,
            "resumed_from": runner.resumed_from if runner else None,
        }

    def _usage(self, stored_bytes: int) -> dict[str, Any]:
        wall_s = round(self._clock.monotonic() - self._began, 3)
        on_gpu = self._services.device.startswith("cuda")
        return {
            "wall_s": wall_s,
            "gpu_s": wall_s if on_gpu else 0.0,
            "peak_gpu_bytes": peak_device_bytes(self._services.device),
            "peak_rss_bytes": peak_host_bytes(),
            "stored_bytes": stored_bytes,
        }

    def _ship_last_lines(self) -> None:
        """Have the last lines stored while the job is still this attempt's.

        Somebody waits for an attempt that has to stop. Any other is as patient with the store as
        with the database: its heartbeat goes on.
        """
        timing = self._services.timing
        if self._shipper is not None:
            stopping = self._switch.is_set()
            self._shipper.ship_rest(timing.last_lines_s if stopping else timing.outage_stop_s)

    @contextmanager
    def _logs(self, layout: ScratchLayout) -> Iterator[None]:
        if not self._services.capture_streams:
            yield
            return
        job_id = self._claim.job_id
        shown_as = {str(layout.root): "<scratch>", str(job_id): format_id(IdPrefix.JOB, job_id)}
        files = LogFiles(layout.logs, self._clock, shown_as=shown_as)
        self._shipper = LogShipper(self._services, self._journal, self._claim, files)
        with capture(files, self._clock):
            self._shipper.start()
            try:
                yield
            finally:
                self._shipper.end()
