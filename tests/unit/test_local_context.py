"""Local runs keep checkpoints and finished phases on disk."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from workers.runtime.context import (
    Context,
    MethodResult,
    PhaseOutput,
    Stopped,
    raise_if_stopped,
)
from workers.runtime.local import LocalContext, local_provenance, restore, run_locally, store


def make_context(root: Path, *, stop_after_polls: int | None = None) -> LocalContext:
    return LocalContext(
        config=None,
        model_dir=root,
        out_dir=root / "out",
        scratch_dir=root / "scratch",
        stop_after_polls=stop_after_polls,
    )


@dataclass
class CountingEngine:
    """Polls once a phase and notes which phases ran."""

    ran: list[str] = field(default_factory=list)

    def evaluate_before(self, ctx: Context) -> PhaseOutput:
        raise_if_stopped(ctx)
        self.ran.append("before")
        return PhaseOutput(state={"seen": 1.5}, arrays={"values": np.arange(3)})

    def debias(self, ctx: Context, before: PhaseOutput) -> PhaseOutput:
        raise_if_stopped(ctx)
        self.ran.append("debias")
        return PhaseOutput(state={"total": int(before.arrays["values"].sum())})

    def evaluate_after(self, ctx: Context, before: PhaseOutput, edit: PhaseOutput) -> PhaseOutput:
        raise_if_stopped(ctx)
        self.ran.append("after")
        return PhaseOutput(state={"twice": 2 * edit.state["total"], **before.state})

    def package(
        self, ctx: Context, before: PhaseOutput, edit: PhaseOutput, after: PhaseOutput
    ) -> MethodResult:
        return MethodResult(before={"x": before.state["seen"]}, after=after.state, summary=())


def test_a_second_run_goes_on_after_the_finished_phases(tmp_path: Path) -> None:
    engine = CountingEngine()
    with pytest.raises(Stopped):
        run_locally(engine, make_context(tmp_path, stop_after_polls=3))

    result = run_locally(engine, make_context(tmp_path))

    assert engine.ran == ["before", "debias", "after"]
    assert result.after == {"twice": 6, "seen": 1.5}


def test_the_newest_checkpoint_of_a_phase_is_read_back(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    for step in (1, 2):
        context.save_checkpoint(step, {"values": np.full(2, step)}, {"note": step})

    found = make_context(tmp_path).load_checkpoint()

    assert found is not None
    assert found.step == 2
    assert found.state == {"note": 2}
    np.testing.assert_array_equal(found.arrays["values"], [2, 2])


def test_a_phase_sees_no_checkpoint_of_another(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    context.save_checkpoint(1, {}, {})

    context.phase = "debiasing"

    assert context.load_checkpoint() is None


def test_a_half_written_folder_counts_as_nothing(tmp_path: Path) -> None:
    store(tmp_path / "a", {"values": np.ones(2)}, {"n": 1})
    (tmp_path / "a" / "state.json").unlink()

    assert restore(tmp_path / "a") is None


def test_provenance_names_every_file_with_its_digest(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"{}")

    provenance = local_provenance(tmp_path, method="m", method_version="1.0.0")

    assert provenance["model_files"] == [
        {
            "path": "config.json",
            "size_bytes": 2,
            "sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
        }
    ]
