"""The `Context` that an attempt gives to its engine."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.domain.clock import Clock
from workers.attempt.journal import Journal
from workers.attempt.points import PointStore
from workers.heartbeat import Activity, StopSwitch
from workers.runtime.context import Arrays, Checkpoint


@dataclass(frozen=True, slots=True)
class EngineInputs:
    """What stays the same for all phases of an attempt."""

    config: Any
    model_dir: Path
    out_dir: Path
    scratch_dir: Path
    device: str
    dtype: str
    seed: int
    provenance: Mapping[str, Any]


class AttemptContext:
    """Engine-facing side of an attempt; cheap calls only, but for checkpoints.

    Parameters
    ----------
    checkpoint_every_s
        Checkpoints that an engine offers more often are passed over, but for the first of a
        phase and those it offers because it was asked to stop.
    """

    def __init__(
        self,
        inputs: EngineInputs,
        journal: Journal,
        points: PointStore,
        switch: StopSwitch,
        activity: Activity,
        *,
        clock: Clock,
        checkpoint_every_s: float,
    ) -> None:
        self._inputs = inputs
        self._journal = journal
        self._points = points
        self._switch = switch
        self._activity = activity
        self._clock = clock
        self._checkpoint_every_s = checkpoint_every_s
        self._saved_at: float | None = None
        self.resumed_from: str | None = None

    @property
    def config(self) -> Any:
        """The method's config, validated and resolved."""
        return self._inputs.config

    @property
    def model_dir(self) -> Path:
        """The base model as a plain transformers directory."""
        return self._inputs.model_dir

    @property
    def out_dir(self) -> Path:
        """Each file below becomes an artifact."""
        return self._inputs.out_dir

    @property
    def scratch_dir(self) -> Path:
        """Room for temporary files on the same file system as `out_dir`."""
        return self._inputs.scratch_dir

    @property
    def device(self) -> str:
        """Torch device string."""
        return self._inputs.device

    @property
    def dtype(self) -> str:
        """`auto`, `float32`, `bfloat16` or `float16`."""
        return self._inputs.dtype

    @property
    def seed(self) -> int:
        """Seed of all randomness of the job."""
        return self._inputs.seed

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Facts for reports, the same for every attempt of the job."""
        return self._inputs.provenance

    def begin_phase(self) -> None:
        """Take the next checkpoint whenever it comes: the attempt's own call, not the engine's."""
        self._saved_at = None

    def progress(self, step: int, total: int, message: str = "") -> None:
        """Report `step` of `total` steps of the running phase."""
        self._activity.touch()
        self._journal.progress(step, total, message)

    def metric(self, name: str, value: float, step: int) -> None:
        """Record one point of a training curve."""
        self._journal.metric(name, value, step)

    def warn(self, code: str, message: str) -> None:
        """Tell the user something that does not stop the job."""
        self._journal.warn(code, message)

    def should_stop(self) -> bool:
        """Whether to stop. Poll at least every step or 2 s, then raise `Stopped`."""
        return self._switch.is_set()

    def save_checkpoint(self, step: int, arrays: Arrays, state: Mapping[str, Any]) -> None:
        """Make the running phase resumable from `step`."""
        now = self._clock.monotonic()
        early = self._saved_at is not None and now - self._saved_at < self._checkpoint_every_s
        if early and not self._switch.is_set():
            return
        self._points.save_step(self._journal.phase, step, arrays, dict(state))
        self._saved_at = self._clock.monotonic()
        self._activity.touch()

    def load_checkpoint(self) -> Checkpoint | None:
        """Return the newest checkpoint of the running phase that fits this job and engine."""
        found = self._points.load_step(self._journal.phase)
        if found is not None:
            phase = str(self._journal.phase)
            data = {"phase": phase, "step": found.step, "action": "restored"}
            self._journal.event("job.checkpoint", data)
            self.resumed_from = phase
        return found
