"""Evaluate the selection's arithmetic part and every control on the base model in memory."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch

from app.catalog.fairness_pruning.config import FairnessPruningConfig
from app.catalog.fairness_pruning.widths import stored_width
from workers.methods.fairness_pruning.heads.choose import HeadChoice, masked_control
from workers.methods.fairness_pruning.measuring.batches import PairBatch
from workers.methods.fairness_pruning.measuring.capture import capture_points, scaled_neurons
from workers.methods.fairness_pruning.measuring.diagnosis import (
    KEPT_POINTS,
    Array,
    Diagnosis,
    diagnose,
)
from workers.methods.fairness_pruning.measuring.metrics import PARITY_POINTS, parity_from_parts
from workers.methods.fairness_pruning.measuring.outcomes import (
    Removed,
    kept_mask,
    outcome_of_masked,
)
from workers.methods.fairness_pruning.measuring.phase_data import Arrays
from workers.methods.fairness_pruning.measuring.subject import Subject
from workers.methods.fairness_pruning.progress import PhaseProgress
from workers.methods.fairness_pruning.selecting.controls import LOSS_CONTROLS, removal_counts_of
from workers.runtime.context import Context

SELECTION = "selection"


def n_control_steps(batches: list[PairBatch], controls: Mapping[str, Removed]) -> int:
    """Count the steps of `run_controls`: one pass for all arithmetic parts, one a control."""
    return len(batches) * (1 + len(controls))


def run_controls(
    ctx: Context,
    subject: Subject,
    base: Diagnosis,
    *,
    selection: Removed,
    controls: Mapping[str, Removed],
    heads: HeadChoice | None,
    progress: PhaseProgress,
) -> Arrays:
    """Evaluate everything that needs the base model once neurons and heads are chosen.

    Returns `before_on_kept/<name>` for the selection and every control, and `outcome/<name>` for
    every control, with `loss/<name>` for some. A checkpoint after each pass lets an interrupted
    job go on with the next.
    """
    checkpoint = ctx.load_checkpoint()
    arrays: Arrays = {} if checkpoint is None else dict(checkpoint.arrays)
    removals = {SELECTION: selection, **controls}
    if checkpoint is None:
        arrays.update(_kept_means(subject, base, removals, progress))
        ctx.save_checkpoint(progress.step, arrays, {})
    else:
        progress.step = checkpoint.step
    for name, removed in controls.items():
        if f"outcome/{name}" in arrays:
            continue
        kept = arrays[f"before_on_kept/{name}"]
        with masked_control(heads, subject.decoder, name, device=ctx.device):
            arrays |= _outcome(ctx, subject, removed, kept, name, progress)
        ctx.save_checkpoint(progress.step, arrays, {})
    return arrays


def _kept_means(
    subject: Subject, base: Diagnosis, removals: Mapping[str, Removed], progress: PhaseProgress
) -> Arrays:
    """Parity of the base model over the kept neurons of each removal: one pass serves all."""
    masks = np.stack([_mask(subject, removed) for removed in removals.values()])
    points = tuple(point for point in KEPT_POINTS if point in base.points)
    kept = diagnose(
        subject.decoder,
        subject.batches,
        n_pairs=len(subject.plan.measured),
        points=points,
        kept=masks,
        on_batch=progress.on_batch("separating arithmetic from behaviour"),
    )
    return {
        f"before_on_kept/{name}": parity_from_parts(base, kept.kept_mean[row], points)
        for row, name in enumerate(removals)
    }


def _outcome(
    ctx: Context,
    subject: Subject,
    removed: Removed,
    before_on_kept: Array,
    name: str,
    progress: PhaseProgress,
) -> Arrays:
    config: FairnessPruningConfig = ctx.config
    mask = _mask(subject, removed)
    rest = config.scale_factor if config.mode == "scale" else 0.0
    factors = torch.from_numpy(np.where(mask, 1.0, rest).astype(np.float32)).to(ctx.device)
    with scaled_neurons(subject.decoder, factors):
        masked = diagnose(
            subject.decoder,
            subject.batches,
            n_pairs=len(subject.plan.measured),
            points=[p for p in capture_points(subject.shape.layout) if p in PARITY_POINTS],
            kept=mask[None],
            with_loss=name in LOSS_CONTROLS,
            on_batch=progress.on_batch(f"running control {name}"),
        )
    dimensions = subject.shape.dimensions
    outcome = outcome_of_masked(
        masked,
        before_on_kept,
        removed,
        mode=config.mode,
        neurons=dimensions.neurons,
        stored_neurons=stored_width(config, dimensions, removal_counts_of(removed)),
    )
    loss: Arrays = {} if masked.loss is None else {f"loss/{name}": masked.loss}
    return {f"outcome/{name}": outcome.to_array(), **loss}


def _mask(subject: Subject, removed: Removed) -> npt.NDArray[np.bool_]:
    dimensions = subject.shape.dimensions
    return kept_mask(removed, layers=dimensions.layers, neurons=dimensions.neurons)
