"""Phase three: load the edited checkpoint, and measure it like the base model."""

import shutil

from app.catalog.fairness_pruning.config import FairnessPruningConfig
from app.domain.errors import JobErrorCode, JobFailure
from workers.methods.fairness_pruning.measure_base import (
    SIGNED,
    category_counts,
    generate_texts,
    picture_request,
    prompts_to_continue,
    signed_means_for,
)
from workers.methods.fairness_pruning.measuring.capture import capture_points
from workers.methods.fairness_pruning.measuring.diagnosis import diagnose
from workers.methods.fairness_pruning.measuring.generation import n_groups
from workers.methods.fairness_pruning.measuring.outcomes import Removed, kept_mask_after
from workers.methods.fairness_pruning.measuring.phase_data import Arrays, pack_diagnosis, pack_texts
from workers.methods.fairness_pruning.measuring.subject import (
    Subject,
    load_subject,
    read_plan,
    read_shape,
)
from workers.methods.fairness_pruning.progress import PhaseProgress
from workers.models.load import load_causal_lm
from workers.runtime.context import Context, PhaseOutput


def measure_edited(ctx: Context, removed: Removed) -> PhaseOutput:
    """Load the checkpoint in `out_dir`, diagnose it, and continue the same prompts.

    Raises
    ------
    JobFailure
        `reload_failed` when the checkpoint does not load; it is removed then.
    """
    folder = ctx.out_dir / "checkpoint"
    try:
        return _measure(ctx, removed)
    except JobFailure as failure:
        if failure.code is JobErrorCode.RELOAD_FAILED:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _measure(ctx: Context, removed: Removed) -> PhaseOutput:
    config: FairnessPruningConfig = ctx.config
    folder = ctx.out_dir / "checkpoint"
    plan = read_plan(ctx)
    if not plan.measured:
        PhaseProgress(ctx, 1).advance("loading the edited model")
        load_causal_lm(
            folder, device=ctx.device, dtype=ctx.dtype, failure=JobErrorCode.RELOAD_FAILED
        )
        return PhaseOutput(state={"texts": [], "dtype": None})
    subject = load_subject(ctx, folder, plan, failure=JobErrorCode.RELOAD_FAILED)
    prompts = prompts_to_continue(plan, config)
    progress = PhaseProgress(ctx, len(subject.batches) + n_groups(prompts))
    arrays = progress.resumed(lambda: _diagnose(ctx, subject, removed, progress))
    made = generate_texts(ctx, subject, prompts, progress)
    return PhaseOutput(state={"texts": pack_texts(made), "dtype": subject.dtype}, arrays=arrays)


def _diagnose(ctx: Context, subject: Subject, removed: Removed, progress: PhaseProgress) -> Arrays:
    config: FairnessPruningConfig = ctx.config
    base = read_shape(ctx.model_dir).dimensions
    kept = kept_mask_after(
        removed,
        mode=config.mode,
        layers=base.layers,
        neurons=base.neurons,
        stored_neurons=subject.shape.dimensions.neurons,
    )
    signed = signed_means_for(ctx, subject)
    diagnosis = diagnose(
        subject.decoder,
        subject.batches,
        n_pairs=len(subject.plan.measured),
        points=capture_points(subject.shape.layout),
        kept=kept[None],
        signed=signed,
        pictures=picture_request(config, subject.plan, base.layers),
        with_loss=True,
        on_batch=progress.on_batch("comparing pairs in the edited model"),
    )
    arrays = pack_diagnosis(diagnosis)
    if signed is not None:
        arrays[SIGNED] = signed.means(category_counts(subject.plan))
    return arrays
