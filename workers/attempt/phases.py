"""The phases of an attempt: each a function of what the earlier ones found."""

import importlib
import json
import random
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, cast

import numpy as np
from sqlalchemy.orm import Session

from app.catalog.method import MethodDescriptor
from app.catalog.registry import MethodRegistry
from app.crash_points import crash_point
from app.db.repositories.execution import Claim
from app.db.tables import Job
from app.domain.errors import JobErrorCode, JobFailure
from app.domain.ids import IdPrefix, format_id
from app.domain.models import FileFact
from app.domain.reproduction import request_of
from app.domain.sources import PinnedModel
from app.domain.specs import ResolvedSpec
from app.domain.states import Phase
from app.integrations.hub import HubClient
from app.security.strict_json import printable
from app.services.secrets import hub_of_project
from workers.attempt.context import AttemptContext, EngineInputs
from workers.attempt.journal import Journal
from workers.attempt.patient_store import PatientStore
from workers.attempt.points import PointStore
from workers.attempt.publish import write_evaluations
from workers.attempt.services import AttemptServices, blob_reader
from workers.fetch import fetch_model
from workers.heartbeat import Activity, StopSwitch
from workers.models.nonfinite import find_nonfinite
from workers.runtime.context import Engine, MethodResult, PhaseOutput, Stopped
from workers.runtime.results import early_rows, write_manifest
from workers.runtime.scratch import ScratchLayout

RESOLVED_SPEC_NAME = "resolved_spec.json"
REQUEST_NAME = "request.json"
# Of the tensors with damaged weights; a damaged model may have thousands.
NAMED_TENSORS = 5


@dataclass(frozen=True, slots=True)
class Controls:
    """How a running attempt speaks and is spoken to."""

    journal: Journal
    switch: StopSwitch
    activity: Activity
    storage: PatientStore
    wake_heartbeat: Callable[[], None]


class PhaseRunner:
    """Takes one attempt from the fetched model to the manifest of its files."""

    def __init__(
        self, services: AttemptServices, claim: Claim, layout: ScratchLayout, controls: Controls
    ) -> None:
        self._services = services
        self._claim = claim
        self._layout = layout
        self._controls = controls
        self._clock = services.database.clock
        self._began: tuple[Phase, float] | None = None
        self._resumed_from: str | None = None
        self.spec = ResolvedSpec.model_validate(claim.resolved_spec)
        self.phase_seconds: dict[str, float] = {}

    @property
    def resumed_from(self) -> str | None:
        """The phase that an earlier attempt had come to, if this one made use of it."""
        return self._resumed_from

    def run(self) -> MethodResult:
        """Run all phases up to packaging.

        Raises
        ------
        JobFailure, Stopped
            As the engine or the fetching of the model does.
        """
        self.enter(Phase.PREPARING)
        method = find_method(self._services.registry, self.spec)
        engine = _load_engine(method)
        points = self._points(method)
        context = self._context(method, points, self._fetch())
        self._warn_of_nonfinite_weights()

        before = self._evaluate_before(engine, context, points)
        # Its output is not kept: the files that belong to it are made anew in any case.
        edit = self._engine_phase(Phase.DEBIASING, context, lambda: engine.debias(context, before))
        after = self._evaluate_after(engine, context, points, (before, edit), method)
        self._begin(Phase.PACKAGING, context)
        result = engine.package(context, before, edit, after)
        if "gguf" in self.spec.outputs.formats:
            _add_gguf(context)
        self._write_listing()
        self._resumed_from = self._resumed_from or context.resumed_from
        return result

    def enter(self, phase: Phase) -> None:
        """Begin a phase, and with it the clock of its duration."""
        if self._controls.switch.is_set():
            raise Stopped
        now = self._clock.monotonic()
        self.finish_timing()
        self._began = (phase, now)
        self._controls.activity.touch()
        self._controls.journal.enter_phase(phase)
        self._controls.wake_heartbeat()
        crash_point(phase, self._claim.attempt)

    def finish_timing(self) -> None:
        """Note how long the running phase took."""
        if self._began is not None:
            phase, began = self._began
            self.phase_seconds[str(phase)] = round(self._clock.monotonic() - began, 3)

    def _evaluate_before(
        self, engine: Engine, context: AttemptContext, points: PointStore
    ) -> PhaseOutput:
        phase = Phase.EVALUATING_BEFORE
        found = self._restored(points, phase)
        if found is not None:
            return found
        output = self._engine_phase(phase, context, lambda: engine.evaluate_before(context))
        rows = early_rows(output.state)

        def write_rows(session: Session, job: Job, now: datetime) -> None:
            write_evaluations(session, job, rows, self.spec, now)

        points.save_phase(phase, output, also=write_rows)
        return output

    def _evaluate_after(
        self,
        engine: Engine,
        context: AttemptContext,
        points: PointStore,
        earlier: tuple[PhaseOutput, PhaseOutput],
        method: MethodDescriptor,
    ) -> PhaseOutput:
        phase = Phase.EVALUATING_AFTER
        # What was measured on another edit is of use only if this edit is the same.
        found = self._restored(points, phase) if method.deterministic else None
        if found is not None:
            return found
        output = self._engine_phase(
            phase, context, lambda: engine.evaluate_after(context, *earlier)
        )
        points.save_phase(phase, output)
        return output

    def _engine_phase(
        self, phase: Phase, context: AttemptContext, work: Callable[[], PhaseOutput]
    ) -> PhaseOutput:
        self._begin(phase, context)
        return work()

    def _begin(self, phase: Phase, context: AttemptContext) -> None:
        self.enter(phase)
        context.begin_phase()
        # Anew in every phase: an attempt that skips a finished one draws the same numbers.
        _seed(self.spec.seed)

    def _restored(self, points: PointStore, phase: Phase) -> PhaseOutput | None:
        found = points.load_phase(phase)
        if found is not None:
            self._resumed_from = str(phase)
            data = {"phase": str(phase), "step": None, "action": "restored"}
            self._controls.journal.event("job.checkpoint", data)
        return found

    def _fetch(self) -> list[FileFact]:
        read_blob = blob_reader(
            self._controls.journal, self._services.store, self._claim.project_id
        )

        def show(done: int, total: int) -> None:
            self._controls.activity.touch()
            self._controls.journal.progress(done, total, "fetching the model")

        return fetch_model(
            cast(PinnedModel, self.spec.model),
            self._layout.model,
            sources=replace(self._services.fetch, read_blob=read_blob, hub_of=self._hub_of_project),
            should_stop=self._controls.switch.is_set,
            on_progress=show,
        )

    def _warn_of_nonfinite_weights(self) -> None:
        activity = self._controls.activity
        found = find_nonfinite(
            self._layout.model,
            should_stop=self._controls.switch.is_set,
            on_bytes=lambda _count: activity.touch(),
        )
        if not found.count:
            return
        first = ", ".join(printable(name) for name in found.tensors[:NAMED_TENSORS])
        more = len(found.tensors) - NAMED_TENSORS
        self._controls.journal.warn(
            "nonfinite_weights",
            f"{found.count} weights of the model are NaN or infinite, in {len(found.tensors)} of "
            f"its tensors: {first}{f' and {more} more' if more > 0 else ''}. What is computed with "
            "them is no number either: use an undamaged copy of the model.",
        )

    def _hub_of_project(self, hub: HubClient) -> HubClient:
        box, project_id = self._services.secrets, self._claim.project_id
        journal = self._controls.journal
        return journal.patiently(
            lambda: journal.read(lambda session: hub_of_project(hub, session, box, project_id))
        )

    def _points(self, method: MethodDescriptor) -> PointStore:
        return PointStore(
            self._controls.journal,
            self._claim,
            self._layout.points,
            storage=self._controls.storage,
            engine_version=f"{method.name}@{method.version}",
        )

    def _context(
        self, method: MethodDescriptor, points: PointStore, files: list[FileFact]
    ) -> AttemptContext:
        inputs = EngineInputs(
            config=method.config.model_validate(self.spec.config),
            model_dir=self._layout.model,
            out_dir=self._layout.out,
            scratch_dir=self._layout.temporary,
            device=self._services.device,
            dtype=self.spec.resources.dtype,
            seed=self.spec.seed,
            provenance=self._provenance(files),
        )
        return AttemptContext(
            inputs,
            self._controls.journal,
            points,
            self._controls.switch,
            self._controls.activity,
            clock=self._clock,
            checkpoint_every_s=self.spec.resources.checkpoint_every_s,
        )

    def _provenance(self, files: list[FileFact]) -> dict[str, Any]:
        return {
            "job_id": format_id(IdPrefix.JOB, self._claim.job_id),
            "job_name": self._claim.name,
            "spec_hash": self._claim.spec_hash,
            "method": self.spec.method,
            "method_version": self.spec.method_version,
            "model": self.spec.model,
            "model_files": [asdict(file) for file in files],
            "resolved_spec": self._claim.resolved_spec,
        }

    def _write_listing(self) -> None:
        # The spec is what the job did, the request what another service can be sent to repeat it.
        written = {
            RESOLVED_SPEC_NAME: self._claim.resolved_spec,
            REQUEST_NAME: request_of(self.spec),
        }
        for name, content in written.items():
            text = json.dumps(content, indent=2, ensure_ascii=False)
            (self._layout.out / name).write_text(f"{text}\n", encoding="utf-8")
        write_manifest(self._layout.out)


def find_method(registry: MethodRegistry, spec: ResolvedSpec) -> MethodDescriptor:
    """Give the very version of the method that the job was checked with.

    Raises
    ------
    JobFailure
        `config_invalid` when this worker does not have it.
    """
    method = registry.find(spec.method, spec.method_version)
    if method is None or method.version != spec.method_version:
        raise JobFailure(
            JobErrorCode.CONFIG_INVALID,
            f"This worker does not have the method {spec.method}@{spec.method_version}.",
            "Run workers of the same release as the API, or send the job again.",
        )
    return method


def _load_engine(method: MethodDescriptor) -> Engine:
    module, _, attribute = method.engine.partition(":")
    engine: Engine = getattr(importlib.import_module(module), attribute)()
    return engine


def _add_gguf(context: AttemptContext) -> None:
    # Not at the top: it imports torch, which the worker's parent must not.
    from workers.models.gguf.output import add_gguf

    add_gguf(context)


def _seed(seed: int) -> None:
    random.seed(seed)
    # Libraries draw from the global generator.
    np.random.seed(seed % 2**32)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)
