"""The pictures of a report, from the evidence."""

from collections.abc import Iterator
from typing import Literal

import numpy as np

from app.catalog.methods.fairness_pruning import METHOD
from workers.methods.fairness_pruning.alignment import token_labels
from workers.methods.fairness_pruning.amplification import growth_curves
from workers.methods.fairness_pruning.capture import CapturePoint
from workers.methods.fairness_pruning.controls import IMPORTANCE_ONLY, random_name
from workers.methods.fairness_pruning.diagnosis import Array, Diagnosis
from workers.methods.fairness_pruning.evidence import Evidence
from workers.methods.fairness_pruning.measure_base import PICTURE_POINT, picture_layers
from workers.methods.fairness_pruning.metrics import PARITY
from workers.methods.fairness_pruning.pair_plan import SPLIT_LABELS, SPLITS, PlannedPair
from workers.methods.fairness_pruning.report import demographic_columns
from workers.models.load import load_tokenizer
from workers.reports.forest import summary_forest
from workers.reports.pca_plot import PairActivations, Slot, pca_plane
from workers.reports.picture import Picture
from workers.reports.plots import (
    ControlDots,
    Curve,
    amplification_curves,
    controls_dots,
    mean_diff_bars,
)

Stage = Literal["before", "after"]
CurveStage = Literal["before", "after", "control"]

_BAR_POINTS = (CapturePoint.MLP_OUTPUT, CapturePoint.ATTENTION_OUTPUT)


def draw_pictures(evidence: Evidence) -> tuple[Picture, ...]:
    """Draw everything; nothing without measured pairs, or when the config asks for no plots."""
    if evidence.base is None or evidence.edited is None or not evidence.config.plots:
        return ()
    titles = {metric.name: f"{metric.title} ({metric.unit})" for metric in METHOD.metrics}
    pictures = [summary_forest(evidence.rows, titles=titles)] if evidence.rows else []
    if evidence.controls:
        pictures.append(controls_dots(_control_dots(evidence)))
    if "mean_diff" in evidence.config.plots:
        pictures += _bars(evidence.base, evidence.edited, evidence.plan.columns("selection"))
    pictures += _growth(evidence, evidence.base, evidence.edited)
    if "pca" in evidence.config.plots:
        pictures += _planes(evidence, evidence.base, "before")
        pictures += _planes(evidence, evidence.edited, "after")
    return tuple(pictures)


def _bars(base: Diagnosis, edited: Diagnosis, columns: list[int]) -> Iterator[Picture]:
    if not columns:
        return
    for point in _BAR_POINTS:
        before, after = (
            stage.of("mean", point)[:, columns].mean(axis=1).tolist() for stage in (base, edited)
        )
        yield mean_diff_bars(point.value, before, after, n_pairs=len(columns))


def _growth(evidence: Evidence, base: Diagnosis, edited: Diagnosis) -> Iterator[Picture]:
    columns, control = demographic_columns(evidence), evidence.plan.columns("control")
    if not columns:
        return
    stages: tuple[tuple[CurveStage, Diagnosis, list[int]], ...] = (
        ("before", base, columns),
        ("after", edited, columns),
        ("control", base, control),
    )
    curves = [
        Curve(component=c.component, stage=stage, mean=c.mean, low=c.low, high=c.high)
        for stage, diagnosis, chosen in stages
        for c in growth_curves(diagnosis, chosen)
    ]
    threshold = evidence.config.amplification.threshold
    yield amplification_curves(curves, threshold=threshold, n_pairs=len(columns))


def _control_dots(evidence: Evidence) -> list[ControlDots]:
    outcome = evidence.outcome
    if outcome is None:
        return []
    parity = evidence.metrics_before[PARITY]
    dots = []
    for split in SPLITS:
        columns = evidence.plan.columns(split)
        if not columns:
            continue
        draws = [
            evidence.controls[random_name(draw)].behavioural
            for draw in range(evidence.config.controls.random_seeds)
        ]
        least = evidence.controls[IMPORTANCE_ONLY].behavioural
        dots.append(
            ControlDots(
                pairs=f"{SPLIT_LABELS[split]} (n = {len(columns)})",
                selection=_percent(outcome.behavioural, parity, columns),
                random=[_percent(draw, parity, columns) for draw in draws],
                importance_only=_percent(least, parity, columns),
            )
        )
    return dots


def _percent(reduction: Array, before: Array, columns: list[int]) -> float:
    """Mean reduction in percent of the mean before; 0 where that is 0."""
    scale = float(np.mean(before[columns]))
    return 100.0 * float(np.mean(reduction[columns])) / scale if scale else 0.0


def _planes(evidence: Evidence, diagnosis: Diagnosis, stage: Stage) -> Iterator[Picture]:
    columns = evidence.plan.columns("selection")
    if not columns:
        return
    pair = evidence.plan.measured[columns[0]]
    for layer in picture_layers(evidence.config, evidence.shape.dimensions.layers):
        rows = diagnosis.pictures.get((columns[0], PICTURE_POINT, layer))
        if rows is None:
            continue
        activations = _pair_activations(evidence, pair, rows)
        picture = pca_plane(PICTURE_POINT.value, layer, activations, stage=stage)
        if picture is None:
            message = f"No PCA picture of layer {layer}, {stage} the edit: fewer than three tokens."
            evidence.ctx.warn("picture_skipped", message)
            continue
        yield picture


def _pair_activations(
    evidence: Evidence, pair: PlannedPair, rows: tuple[np.ndarray, np.ndarray]
) -> PairActivations:
    """Leave special tokens out, unless asked for: they would own the first axis."""
    tokenizer = load_tokenizer(evidence.ctx.model_dir)
    special = set() if evidence.config.pca_include_special else set(tokenizer.all_special_ids)
    shown = [
        [position for position, token in enumerate(ids) if token not in special]
        for ids in (pair.ids_1, pair.ids_2)
    ]
    row_1, row_2 = ({position: row for row, position in enumerate(side)} for side in shown)
    labels_1, labels_2 = (token_labels(tokenizer, ids) for ids in (pair.ids_1, pair.ids_2))
    slots = [
        Slot(rows_1=rows_1, rows_2=rows_2, differs=differs)
        for slot in pair.alignment.slots
        if (rows_1 := [row_1[k] for k in range(slot.start_1, slot.stop_1) if k in row_1])
        and (rows_2 := [row_2[k] for k in range(slot.start_2, slot.stop_2) if k in row_2])
        for differs in (
            pair.ids_1[slot.start_1 : slot.stop_1] != pair.ids_2[slot.start_2 : slot.stop_2],
        )
    ]
    return PairActivations(
        tokens_1=[labels_1[position] for position in shown[0]],
        tokens_2=[labels_2[position] for position in shown[1]],
        rows_1=rows[0][shown[0]],
        rows_2=rows[1][shown[1]],
        slots=slots,
    )
