"""Run an engine without a service: for tests and `debias run --local`."""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from workers.runtime.context import (
    Arrays,
    Checkpoint,
    Engine,
    MethodResult,
    PhaseOutput,
)

PHASES = ("evaluating_before", "debiasing", "evaluating_after")


@dataclass(slots=True)
class LocalContext:
    """A `Context` on plain directories.

    Checkpoints and finished phases are kept below `scratch_dir`, so that a second run with the
    same directories goes on where the first one stopped. `stop_after_polls` asks the engine to
    stop at that poll of `should_stop`, counted from 1; None never does.
    """

    config: Any
    model_dir: Path
    out_dir: Path
    scratch_dir: Path
    device: str = "cpu"
    dtype: str = "auto"
    seed: int = 0
    provenance: Mapping[str, Any] = field(default_factory=dict)
    stop_after_polls: int | None = None
    phase: str = PHASES[0]
    polls: int = 0
    warnings: list[tuple[str, str]] = field(default_factory=list)
    metrics: list[tuple[str, float, int]] = field(default_factory=list)
    steps: list[tuple[str, int, int, str]] = field(default_factory=list)

    def progress(self, step: int, total: int, message: str = "") -> None:
        """Note the step."""
        self.steps.append((self.phase, step, total, message))

    def metric(self, name: str, value: float, step: int) -> None:
        """Note the point."""
        self.metrics.append((name, value, step))

    def warn(self, code: str, message: str) -> None:
        """Note the warning."""
        self.warnings.append((code, message))

    def should_stop(self) -> bool:
        """Count the poll and say whether to stop."""
        self.polls += 1
        return self.stop_after_polls is not None and self.polls >= self.stop_after_polls

    def save_checkpoint(self, step: int, arrays: Arrays, state: Mapping[str, Any]) -> None:
        """Replace the running phase's checkpoint."""
        store(self._checkpoint_folder(), arrays, {"step": step, "state": dict(state)})

    def load_checkpoint(self) -> Checkpoint | None:
        """Read the running phase's checkpoint, if there is one."""
        found = restore(self._checkpoint_folder())
        if found is None:
            return None
        arrays, state = found
        return Checkpoint(step=state["step"], arrays=arrays, state=state["state"])

    def _checkpoint_folder(self) -> Path:
        return self.scratch_dir / "checkpoints" / self.phase


def run_locally(
    engine: Engine, ctx: LocalContext, *, formats: Collection[str] = ("safetensors",)
) -> MethodResult:
    """Run the phases in order, skipping those that an earlier run has finished.

    With `gguf` among the formats, the edited model is written in that form too.
    """
    ctx.out_dir.mkdir(parents=True, exist_ok=True)
    ctx.scratch_dir.mkdir(parents=True, exist_ok=True)
    before = _phase(ctx, PHASES[0], lambda: engine.evaluate_before(ctx))
    edit = _phase(ctx, PHASES[1], lambda: engine.debias(ctx, before))
    after = _phase(ctx, PHASES[2], lambda: engine.evaluate_after(ctx, before, edit))
    ctx.phase = "packaging"
    result = engine.package(ctx, before, edit, after)
    if "gguf" in formats:
        # Not at the top: it imports torch, which most users of this module do without.
        from workers.models.gguf.output import add_gguf

        add_gguf(ctx)
    return result


def local_provenance(model_dir: Path, *, method: str, method_version: str) -> dict[str, Any]:
    """Facts for the report of a local run, the files of the model with their SHA-256 included."""
    files = [
        {"path": path.name, "size_bytes": path.stat().st_size, "sha256": _sha256(path)}
        for path in sorted(model_dir.iterdir())
        if path.is_file()
    ]
    return {
        "job_id": "local",
        "job_name": None,
        "spec_hash": "",
        "method": method,
        "method_version": method_version,
        "model": {"path": model_dir.name},
        "model_files": files,
        "resolved_spec": {},
    }


def store(folder: Path, arrays: Arrays, state: Mapping[str, Any]) -> None:
    """Write arrays and state; the state file comes last and marks the folder as complete."""
    folder.mkdir(parents=True, exist_ok=True)
    marker = folder / "state.json"
    marker.unlink(missing_ok=True)
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    save_file(contiguous, folder / "arrays.safetensors")
    partial = folder / "state.json.partial"
    partial.write_text(json.dumps(state, allow_nan=False))
    partial.rename(marker)


def restore(folder: Path) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Read what `store` wrote, or None when there is nothing complete."""
    marker = folder / "state.json"
    if not marker.exists():
        return None
    return load_file(folder / "arrays.safetensors"), json.loads(marker.read_text())


def _phase(ctx: LocalContext, name: str, run: Callable[[], PhaseOutput]) -> PhaseOutput:
    ctx.phase = name
    folder = ctx.scratch_dir / "phases" / name
    found = restore(folder)
    if found is not None:
        return PhaseOutput(state=found[1], arrays=found[0])
    output = run()
    store(folder, output.arrays, output.state)
    return output


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
