"""The pictures of a report, from the evidence."""

from collections.abc import Iterator
from typing import Literal

import numpy as np

from app.catalog.methods.fairness_pruning import METHOD
from workers.methods.fairness_pruning.measure_base import SIGNED, category_counts
from workers.methods.fairness_pruning.measuring.amplification import growth_curves
from workers.methods.fairness_pruning.measuring.diagnosis import Array, Diagnosis
from workers.methods.fairness_pruning.measuring.metrics import METRICS, PARITY
from workers.methods.fairness_pruning.measuring.pair_plan import SPLIT_LABELS, SPLITS
from workers.methods.fairness_pruning.measuring.signed_means import SIGNED_POINTS
from workers.methods.fairness_pruning.reporting.evidence import Evidence
from workers.methods.fairness_pruning.reporting.headline import split_row
from workers.methods.fairness_pruning.reporting.report import demographic_columns, neuron_map_entry
from workers.methods.fairness_pruning.reporting.token_pictures import heat_maps, planes
from workers.methods.fairness_pruning.selecting.controls import IMPORTANCE_ONLY, random_name
from workers.reports.bars import before_after_bars
from workers.reports.forest import forest_plots
from workers.reports.layer_map import LayerPanel, layer_position_map
from workers.reports.measured_forest import measured_forests
from workers.reports.neuron_plot import Overlap, neuron_map_picture
from workers.reports.picture import Picture
from workers.reports.plots import (
    ControlDots,
    Curve,
    amplification_curves,
    controls_dots,
    mean_diff_bars,
)
from workers.runtime.context import SummaryRow

Stage = Literal["before", "after"]
CurveStage = Literal["before", "after", "control"]


def draw_pictures(evidence: Evidence) -> tuple[Picture, ...]:
    """Draw everything; nothing without measured pairs, or when the config asks for no plots."""
    base, edited, plots = evidence.base, evidence.edited, evidence.config.plots
    if base is None or not plots:
        return ()
    names = {metric.name: metric.title for metric in METHOD.metrics}
    units = {metric.name: metric.unit for metric in METHOD.metrics}
    titles = {name: f"{title} ({units[name]})" for name, title in names.items()}
    pictures: list[Picture] = []
    if edited is None:
        pictures += measured_forests(evidence.rows, titles=names, units=units)
    else:
        pictures += forest_plots(evidence.rows, titles=names, units=units)
        pictures.append(before_after_bars(_whole_rows(evidence), titles=titles))
    if evidence.controls:
        pictures.append(controls_dots(_control_dots(evidence)))
    if "mean_diff" in plots:
        pictures += _bars(base, edited, evidence.plan.columns("selection"))
    pictures += _growth(evidence, base, edited)
    if "layer_neuron" in plots:
        pictures += _layer_maps(evidence)
    pictures += _neuron_sets(evidence)
    if "heatmap" in plots:
        pictures += heat_maps(evidence)
    if "pca" in plots:
        pictures += planes(evidence)
    return tuple(pictures)


def _whole_rows(evidence: Evidence) -> list[SummaryRow]:
    """Rows over all pairs of each split: few enough to be read as bars."""
    rows = (split_row(evidence, metric, split) for metric in METRICS for split in SPLITS)
    return [row for row in rows if row is not None]


def _bars(base: Diagnosis, edited: Diagnosis | None, columns: list[int]) -> Iterator[Picture]:
    if not columns:
        return
    for point in SIGNED_POINTS:
        if point not in base.points:
            continue
        before, after = (
            None if stage is None else stage.of("mean", point)[:, columns].mean(axis=1).tolist()
            for stage in (base, edited)
        )
        yield mean_diff_bars(point.value, before or [], after, n_pairs=len(columns))


def _growth(evidence: Evidence, base: Diagnosis, edited: Diagnosis | None) -> Iterator[Picture]:
    columns, control = demographic_columns(evidence), evidence.plan.columns("control")
    if not columns:
        return
    stages: tuple[tuple[CurveStage, Diagnosis | None, list[int]], ...] = (
        ("before", base, columns),
        ("after", edited, columns),
        ("control", base, control),
    )
    curves = [
        Curve(component=c.component, stage=stage, mean=c.mean, low=c.low, high=c.high)
        for stage, diagnosis, chosen in stages
        if diagnosis is not None
        for c in growth_curves(diagnosis, chosen)
    ]
    threshold = evidence.config.amplification.threshold
    yield amplification_curves(curves, threshold=threshold, n_pairs=len(columns))


def _layer_maps(evidence: Evidence) -> Iterator[Picture]:
    """Draw the signed differences of each category, with the colours of the base model."""
    categories = evidence.plan.categories
    before = evidence.before.arrays.get(SIGNED)
    if before is None or evidence.base is None:
        return
    after = None if evidence.edited is None else evidence.after.arrays[SIGNED]
    counts = category_counts(evidence.plan)
    points = [point for point in SIGNED_POINTS if point in evidence.base.points]
    for position, point in enumerate(points):
        limit = None
        stages: tuple[tuple[Stage, Array | None], ...] = (("before", before), ("after", after))
        for stage, values in stages:
            if values is None:
                continue
            panels = [
                LayerPanel(name, int(count), differences)
                for name, count, differences in zip(
                    categories, counts, values[position], strict=True
                )
            ]
            picture = layer_position_map(
                point.value, panels, stage=stage if after is not None else None, limit=limit
            )
            limit = picture.data["limit"]
            yield picture


def _neuron_sets(evidence: Evidence) -> Iterator[Picture]:
    """Draw the neuron map, where there is one."""
    if not evidence.shape.layout.is_editable:
        return
    found = neuron_map_entry(evidence)
    if found is None:
        return
    categories = evidence.plan.categories
    layers = [
        {
            name: [
                entry["neuron"] for entry in found["layers"][layer] if name in entry["categories"]
            ]
            for name in categories
        }
        for layer in sorted(found["layers"], key=int)
    ]
    overlaps = [Overlap(tuple(e["categories"]), **e["pooled"]) for e in found["overlap"]]
    yield neuron_map_picture(
        categories,
        layers,
        overlaps,
        neurons=evidence.shape.dimensions.neurons,
        pair_counts=found["pair_counts"],
    )


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
