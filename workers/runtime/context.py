"""The only thing an engine sees of the world: files, settings, and a way to talk back.

An engine knows no database, no network and no Celery; the same engine runs in a test, in
`debias run --local` and in a worker. The attempt implements `Context`; `LocalContext` in
`workers.runtime.local` is the one for tests and local runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Arrays = Mapping[str, npt.NDArray[Any]]


class Stopped(Exception):
    """The engine was asked to stop (cancel, drain, time limit) and has done so."""


@dataclass(frozen=True, slots=True)
class PhaseOutput:
    """What a finished phase hands to the later ones, stored so that a retry need not repeat it.

    `state` is plain JSON (finite numbers only); `arrays` are saved as safetensors.
    """

    state: Mapping[str, Any] = field(default_factory=dict)
    arrays: Arrays = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A resumable point inside the running phase."""

    step: int
    arrays: Mapping[str, npt.NDArray[Any]]
    state: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """One line of the before/after table.

    Intervals are 95 %, as (low, high); `n` counts resampling units, named by `unit`.
    `improved` is True or False only where the paired interval of the difference excludes zero,
    judged by the distance to `ideal`; None means no reliable change.
    """

    benchmark: str
    metric: str
    group: str | None
    before: float | None
    after: float | None
    delta: float | None
    ideal: float | None
    improved: bool | None
    ci95_before: tuple[float, float] | None
    ci95_after: tuple[float, float] | None
    ci95_delta: tuple[float, float] | None
    n: int
    unit: str
    p_value: float | None = None


@dataclass(frozen=True, slots=True)
class MethodResult:
    """What a method has to say at the end.

    `metrics` maps a metric name to its value per stage; `warnings` are sentences for the user.
    """

    before: Mapping[str, float | None]
    after: Mapping[str, float | None]
    summary: tuple[SummaryRow, ...]


class Context(Protocol):
    """What an attempt gives to an engine. Directories exist; `model_dir` is read-only."""

    @property
    def config(self) -> Any:
        """The method's config, validated and resolved."""

    @property
    def model_dir(self) -> Path:
        """The base model as a plain transformers directory."""

    @property
    def out_dir(self) -> Path:
        """Each file below becomes an artifact; its relative POSIX path is the artifact's name."""

    @property
    def scratch_dir(self) -> Path:
        """Room for temporary files on the same file system as `out_dir`."""

    @property
    def device(self) -> str:
        """Torch device string."""

    @property
    def dtype(self) -> str:
        """`auto`, `float32`, `bfloat16` or `float16`."""

    @property
    def seed(self) -> int:
        """Seed of all randomness of the job."""

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Facts for reports, the same for every attempt of the job.

        Keys: `job_id`, `job_name`, `spec_hash`, `method`, `method_version`, `model` (source as
        pinned), `model_files` ([{path, size_bytes, sha256}]), `resolved_spec`.
        """

    def progress(self, step: int, total: int, message: str = "") -> None:
        """Report `step` of `total` steps of the running phase. Cheap; call it every step."""

    def metric(self, name: str, value: float, step: int) -> None:
        """Record one point of a training curve."""

    def warn(self, code: str, message: str) -> None:
        """Tell the user something that does not stop the job."""

    def should_stop(self) -> bool:
        """Whether to stop. Poll at least every step or 2 s, then raise `Stopped`."""

    def save_checkpoint(self, step: int, arrays: Arrays, state: Mapping[str, Any]) -> None:
        """Make the running phase resumable from `step`."""

    def load_checkpoint(self) -> Checkpoint | None:
        """Return the newest checkpoint of this phase that fits job and engine, if any."""


class Engine(Protocol):
    """One debiasing method. Each phase is a function of the context and the earlier outputs.

    Every phase must be idempotent: after a crash it runs again in an empty `out_dir`. `debias`
    writes the edited model to `out_dir/checkpoint`; `package` writes `report.json`,
    `report.html` and `plots/`.
    """

    def evaluate_before(self, ctx: Context) -> PhaseOutput:
        """Measure the base model."""

    def debias(self, ctx: Context, before: PhaseOutput) -> PhaseOutput:
        """Edit the model and write it to `out_dir/checkpoint`."""

    def evaluate_after(self, ctx: Context, before: PhaseOutput, edit: PhaseOutput) -> PhaseOutput:
        """Measure the edited model, loaded from `out_dir/checkpoint`."""

    def package(
        self, ctx: Context, before: PhaseOutput, edit: PhaseOutput, after: PhaseOutput
    ) -> MethodResult:
        """Write report and plots, and return the result."""


def raise_if_stopped(ctx: Context) -> None:
    """Raise `Stopped` when the attempt asks the engine to stop."""
    if ctx.should_stop():
        raise Stopped


def finite_or_none(value: float) -> float | None:
    """`value` as JSON may carry it: None where it is NaN or infinite."""
    return float(value) if np.isfinite(value) else None
