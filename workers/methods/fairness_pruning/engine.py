"""Fairness Pruning: remove the MLP neurons that react most to a swapped demographic word.

References
----------
P. Martra, Fairness Pruning: precision surgery to reduce bias in LLMs; optiPfair;
arXiv:2512.22671 for the importance measures.

Deviations from the article: differences are reduced in fp32 whatever the model's dtype, prompts
of unequal length are aligned instead of dropped, the default importance is the formula that the
article prints (`max_abs`; the preset `article` uses `ppm` as its code does), and every edit is
compared with random and importance-only removals.

Attention heads can be taken out as well: an extension, in `heads`.

With `diagnose_only` a job measures the base model and reports on it; nothing is edited.
"""

import shutil
from dataclasses import dataclass
from typing import Any

from app.catalog.fairness_pruning.config import FairnessPruningConfig
from workers.methods.fairness_pruning.choose import Choice, choose, control_removals
from workers.methods.fairness_pruning.diagnosis_job import rank_importance, write_diagnosis
from workers.methods.fairness_pruning.editing.edit import EditReport, apply_edit
from workers.methods.fairness_pruning.heads.choose import (
    pack_heads,
    removal_of,
    stack_head_scores,
    unpack_removal,
)
from workers.methods.fairness_pruning.heads.edits import HeadRemoval
from workers.methods.fairness_pruning.measure_base import measure_base
from workers.methods.fairness_pruning.measure_edited import measure_edited
from workers.methods.fairness_pruning.measuring.capture import capture_points
from workers.methods.fairness_pruning.measuring.outcomes import Removed
from workers.methods.fairness_pruning.measuring.pair_plan import PairPlan
from workers.methods.fairness_pruning.measuring.phase_data import (
    Arrays,
    pack_removed,
    stack_layers,
    unpack_diagnosis,
    unpack_removed,
)
from workers.methods.fairness_pruning.measuring.subject import (
    Shape,
    load_subject,
    read_plan,
    read_shape,
)
from workers.methods.fairness_pruning.progress import PhaseProgress
from workers.methods.fairness_pruning.reporting.evidence import evaluation_rows
from workers.methods.fairness_pruning.reporting.package import write_package
from workers.methods.fairness_pruning.run_controls import n_control_steps, run_controls
from workers.runtime.context import Context, MethodResult, PhaseOutput

# The edit reports bytes; as steps beside those of the diagnosis they would dwarf everything.
_EDIT_STEPS = 20


@dataclass(frozen=True, slots=True)
class Engine:
    """The engine of Fairness Pruning. It keeps nothing between phases."""

    def evaluate_before(self, ctx: Context) -> PhaseOutput:
        """Diagnose and score the base model, and let it continue some prompts."""
        before = measure_base(ctx)
        rows = evaluation_rows(ctx, before)
        return PhaseOutput(state={**before.state, "evaluation_rows": rows}, arrays=before.arrays)

    def debias(self, ctx: Context, before: PhaseOutput) -> PhaseOutput:
        """Choose neurons and heads, run the controls, and write the edited checkpoint."""
        if ctx.config.diagnose_only:
            return rank_importance(ctx, before)
        plan, shape = read_plan(ctx), read_shape(ctx.model_dir)
        choice = choose(ctx, before, plan, shape)
        for warning in choice.warnings:
            ctx.warn(warning.code, warning.message)
        controls = _controls(ctx, choice, plan, shape)
        arrays, progress = _evaluate(ctx, before, choice, controls, plan)
        report = _edit(ctx, choice.selection.removed, removal_of(choice.heads), progress)
        arrays["importance"] = stack_layers(choice.importance)
        arrays |= stack_head_scores(choice.heads)
        return PhaseOutput(state=_edit_state(choice, controls, report), arrays=arrays)

    def evaluate_after(self, ctx: Context, before: PhaseOutput, edit: PhaseOutput) -> PhaseOutput:
        """Load the edited checkpoint in plain transformers and measure it."""
        del before
        if ctx.config.diagnose_only:
            return PhaseOutput(state={"texts": [], "dtype": None})
        _ensure_checkpoint(ctx, edit)
        return measure_edited(ctx, unpack_removed(edit.state["removed"]))

    def package(
        self, ctx: Context, before: PhaseOutput, edit: PhaseOutput, after: PhaseOutput
    ) -> MethodResult:
        """Write report, card and pictures."""
        if ctx.config.diagnose_only:
            return write_diagnosis(ctx, before, edit, after)
        _ensure_checkpoint(ctx, edit)
        return write_package(ctx, before, edit, after)


def _controls(ctx: Context, choice: Choice, plan: PairPlan, shape: Shape) -> dict[str, Removed]:
    config: FairnessPruningConfig = ctx.config
    if not (config.controls.enabled and choice.takes_out_something and plan.measured):
        return {}
    return control_removals(ctx, choice, shape)


def _evaluate(
    ctx: Context,
    before: PhaseOutput,
    choice: Choice,
    controls: dict[str, Removed],
    plan: PairPlan,
) -> tuple[Arrays, PhaseProgress]:
    if not plan.measured:
        return {}, PhaseProgress(ctx, _EDIT_STEPS)
    subject = load_subject(ctx, ctx.model_dir, plan)
    progress = PhaseProgress(ctx, n_control_steps(subject.batches, controls) + _EDIT_STEPS)
    base = unpack_diagnosis(before.arrays, capture_points(subject.shape.layout))
    arrays = run_controls(
        ctx,
        subject,
        base,
        selection=choice.selection.removed,
        controls=controls,
        heads=choice.heads,
        progress=progress,
    )
    return arrays, progress


def _edit(
    ctx: Context, removed: Removed, heads: HeadRemoval | None, progress: PhaseProgress | None
) -> EditReport:
    start = progress.step if progress else 0

    def on_progress(done: int, total: int) -> None:
        if progress is not None:
            share = done / total if total else 1.0
            progress.step = start + round(_EDIT_STEPS * share)
            ctx.progress(progress.step, progress.total, "writing the edited checkpoint")

    folder = ctx.out_dir / "checkpoint"
    # A crash after the edit leaves a finished folder behind, and the edit starts from none.
    shutil.rmtree(folder, ignore_errors=True)
    return apply_edit(
        ctx.model_dir,
        folder,
        removed,
        ctx.config,
        should_stop=ctx.should_stop,
        on_progress=on_progress,
        heads=heads,
    )


def _ensure_checkpoint(ctx: Context, edit: PhaseOutput) -> None:
    """Write the checkpoint again where a new attempt starts without the files of the last."""
    if not (ctx.out_dir / "checkpoint").exists():
        _edit(ctx, unpack_removed(edit.state["removed"]), unpack_removal(edit.state), None)


def _edit_state(choice: Choice, controls: dict[str, Removed], report: EditReport) -> dict[str, Any]:
    selection = choice.selection
    return {
        "removed": pack_removed(selection.removed),
        "controls": {name: pack_removed(removed) for name, removed in controls.items()},
        "requested_fraction": selection.requested_fraction,
        "effective_fraction": selection.effective_fraction,
        "warnings": [[warning.code, warning.message] for warning in choice.warnings],
        "parameters_before": report.parameters_before,
        "parameters_after": report.parameters_after,
        "intermediate_size_before": report.intermediate_size_before,
        "intermediate_size_after": report.intermediate_size_after,
        "padding_neurons": {str(n): count for n, count in report.padding_neurons.items()},
        "tensors_changed": list(report.tensors_changed),
        "files": [
            {"path": file.path, "size_bytes": file.size_bytes, "sha256": file.sha256}
            for file in report.files
        ],
        **pack_heads(choice.heads),
    }
