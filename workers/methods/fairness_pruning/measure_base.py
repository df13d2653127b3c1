"""Phase one: diagnose the base model, score its neurons, and let it continue some prompts."""

from typing import Any

import numpy as np
import numpy.typing as npt

from app.catalog.fairness_pruning.config import FairnessPruningConfig
from workers.methods.fairness_pruning.heads.measure import measured_heads
from workers.methods.fairness_pruning.measuring.bias_scores import (
    BiasScores,
    ScoreRule,
    new_bias_scores,
)
from workers.methods.fairness_pruning.measuring.calibration import activation_norms, windows
from workers.methods.fairness_pruning.measuring.capture import CapturePoint, capture_points
from workers.methods.fairness_pruning.measuring.diagnosis import PictureRequest, diagnose
from workers.methods.fairness_pruning.measuring.generation import continue_prompts, n_groups
from workers.methods.fairness_pruning.measuring.pair_plan import PairPlan, PlannedPair
from workers.methods.fairness_pruning.measuring.phase_data import (
    Arrays,
    Texts,
    pack_diagnosis,
    pack_texts,
)
from workers.methods.fairness_pruning.measuring.signed_means import (
    SIGNED_POINTS,
    SignedMeans,
    new_signed_means,
)
from workers.methods.fairness_pruning.measuring.subject import Subject, load_subject, read_plan
from workers.methods.fairness_pruning.progress import PhaseProgress
from workers.runtime.context import Context, PhaseOutput

PICTURE_POINT = CapturePoint.MLP_OUTPUT
"""Component of the PCA pictures, as in the article."""

SIGNED = "signed"
"""Array of signed mean differences, (points, categories, layers, width)."""

MAX_HEAT_MAP_PAIRS = 3
"""Pairs of a heat map, one a category: more panels would not fit one page."""


def measure_base(ctx: Context) -> PhaseOutput:
    """Measure the base model; a checkpoint separates the diagnosis from the generations."""
    config: FairnessPruningConfig = ctx.config
    plan = read_plan(ctx)
    if not plan.measured and config.calibration_texts is None:
        return PhaseOutput(state={"texts": [], "dtype": None})
    subject = load_subject(ctx, ctx.model_dir, plan)
    texts = _calibration_windows(config, subject)
    prompts = prompts_to_continue(plan, config)
    total = len(texts) + len(subject.batches) + n_groups(prompts)
    progress = PhaseProgress(ctx, total)
    arrays = progress.resumed(lambda: _diagnose_and_score(ctx, subject, texts, progress))
    made = generate_texts(ctx, subject, prompts, progress)
    return PhaseOutput(state={"texts": pack_texts(made), "dtype": subject.dtype}, arrays=arrays)


def pairs_to_continue(plan: PairPlan, config: FairnessPruningConfig) -> list[PlannedPair]:
    """Pairs whose prompts are continued: the first ones of each category in turn."""
    settings = config.generation
    by_category: dict[str, list[PlannedPair]] = {}
    for pair in plan.pairs[: len(config.pairs)]:
        longest = max(len(pair.ids_1), len(pair.ids_2))
        if settings.max_length is None or longest < settings.max_length:
            by_category.setdefault(pair.category, []).append(pair)
    queues = list(by_category.values())
    longest_queue = max((len(queue) for queue in queues), default=0)
    in_turn = [q[n] for n in range(longest_queue) for q in queues if n < len(q)]
    return sorted(in_turn[: settings.max_pairs], key=lambda pair: pair.number)


def prompts_to_continue(plan: PairPlan, config: FairnessPruningConfig) -> list[tuple[int, ...]]:
    """Token ids of the prompts that are continued."""
    return [ids for pair in pairs_to_continue(plan, config) for ids in (pair.ids_1, pair.ids_2)]


def generate_texts(
    ctx: Context, subject: Subject, prompts: list[tuple[int, ...]], progress: PhaseProgress
) -> Texts:
    """Continue `prompts`, one step of progress for each group of equal length."""
    config: FairnessPruningConfig = ctx.config
    return continue_prompts(
        subject,
        prompts,
        config.generation,
        seed=ctx.seed,
        on_group=lambda: progress.advance("continuing prompts"),
        on_token=progress.poll,
    )


def picture_request(config: FairnessPruningConfig, plan: PairPlan, layers: int) -> PictureRequest:
    """Activations that PCA pictures and heat maps need: of few pairs, in few layers."""
    columns = plan.columns("selection")
    points: set[CapturePoint] = set()
    pairs: set[int] = set()
    if "pca" in config.plots:
        points.add(PICTURE_POINT)
        pairs.update(columns[:1])
    if "heatmap" in config.plots:
        points.update(SIGNED_POINTS)
        pairs.update(heat_map_columns(plan))
    chosen = picture_layers(config, layers)
    keys = frozenset((point, layer) for point in points for layer in chosen)
    return PictureRequest(keys=keys, pairs=frozenset(pairs))


def heat_map_columns(plan: PairPlan) -> list[int]:
    """Columns of the pairs that heat maps show: the first selection pair of each category."""
    firsts = [plan.columns("selection", name)[0] for name in plan.categories]
    return firsts[:MAX_HEAT_MAP_PAIRS]


def picture_layers(config: FairnessPruningConfig, layers: int) -> tuple[int, ...]:
    """Layers with PCA picture and heat map: the configured ones, else first, middle and last."""
    chosen = config.plot_layers if config.plot_layers is not None else (0, layers // 2, layers - 1)
    return tuple(sorted(set(chosen)))


def _calibration_windows(config: FairnessPruningConfig, subject: Subject) -> list[tuple[int, ...]]:
    encoded = [subject.tokenizer(text)["input_ids"] for text in config.calibration_texts or ()]
    return windows(encoded, max_positions=subject.shape.max_positions)


def _diagnose_and_score(
    ctx: Context, subject: Subject, texts: list[tuple[int, ...]], progress: PhaseProgress
) -> Arrays:
    config: FairnessPruningConfig = ctx.config
    dimensions, layout = subject.shape.dimensions, subject.shape.layout
    arrays: Arrays = {}
    if texts:
        arrays["activation_norms"] = activation_norms(
            subject.decoder,
            texts,
            neurons=dimensions.neurons,
            on_text=lambda: progress.advance("reading calibration texts"),
        )
    scores = _new_scores(ctx, subject) if layout.is_editable else None
    signed = signed_means_for(ctx, subject)
    with measured_heads(ctx, subject, score_rule(config)) as heads:
        diagnosis = diagnose(
            subject.decoder,
            subject.batches,
            n_pairs=len(subject.plan.measured),
            points=capture_points(layout),
            scores=scores,
            signed=signed,
            pictures=picture_request(config, subject.plan, dimensions.layers),
            with_loss=True,
            on_batch=heads.following(progress.on_batch("comparing pairs in the base model")),
        )
    counts = category_counts(subject.plan)
    arrays |= heads.arrays(counts)
    if scores is not None:
        arrays["bias_scores"] = scores.mean_or_max(counts)
    if signed is not None:
        arrays[SIGNED] = signed.means(counts)
    return {**arrays, **pack_diagnosis(diagnosis)}


def _new_scores(ctx: Context, subject: Subject) -> BiasScores:
    dimensions = subject.shape.dimensions
    return new_bias_scores(
        score_rule(ctx.config),
        has_gate=subject.shape.layout.projection("gate") is not None,
        categories=len(subject.plan.categories),
        layers=dimensions.layers,
        neurons=dimensions.neurons,
        device=ctx.device,
    )


def signed_means_for(ctx: Context, subject: Subject) -> SignedMeans | None:
    """Return empty sums for the layer maps, None where none are asked for."""
    config: FairnessPruningConfig = ctx.config
    if "layer_neuron" not in config.plots or not subject.plan.categories:
        return None
    return new_signed_means(
        capture_points(subject.shape.layout),
        layers=subject.shape.dimensions.layers,
        categories=len(subject.plan.categories),
        width=subject.shape.dimensions.hidden,
        device=ctx.device,
    )


def category_counts(plan: PairPlan) -> npt.NDArray[np.int64]:
    """Count the selection pairs of each category."""
    return np.array(
        [len(plan.columns("selection", name)) for name in plan.categories], dtype=np.int64
    )


def score_rule(config: Any) -> ScoreRule:
    """Take the scoring choices out of a config."""
    return ScoreRule(
        bias_point=config.bias_point,
        token_reduction=config.token_reduction,
        score_tokens=config.score_tokens,
        pair_aggregation=config.pair_aggregation,
    )
