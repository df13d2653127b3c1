"""Pictures of single pairs: the plane of their tokens, and heat maps of their differences."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from workers.methods.fairness_pruning.measure_base import (
    PICTURE_POINT,
    heat_map_columns,
    picture_layers,
)
from workers.methods.fairness_pruning.measuring.alignment import Slot as AlignedSlot
from workers.methods.fairness_pruning.measuring.alignment import token_labels
from workers.methods.fairness_pruning.measuring.capture import CapturePoint
from workers.methods.fairness_pruning.measuring.diagnosis import Diagnosis
from workers.methods.fairness_pruning.measuring.pair_plan import PlannedPair
from workers.methods.fairness_pruning.measuring.signed_means import SIGNED_POINTS
from workers.methods.fairness_pruning.reporting.evidence import Evidence
from workers.models.load import load_tokenizer
from workers.reports.heat_map import HeatPanel, SlotRow, token_heat_map
from workers.reports.pca_plot import PairActivations, Slot, pca_plane
from workers.reports.picture import Picture

Stage = Literal["before", "after"]
Rows = npt.NDArray[np.float32]


def slot_differences(slots: Sequence[AlignedSlot], rows_1: Rows, rows_2: Rows) -> Rows:
    """Absolute difference of each slot, (slots, width); a span counts with its mean."""
    sides = (
        np.stack([rows_1[slot.start_1 : slot.stop_1].mean(axis=0) for slot in slots]),
        np.stack([rows_2[slot.start_2 : slot.stop_2].mean(axis=0) for slot in slots]),
    )
    differences: Rows = np.abs(sides[0] - sides[1])
    return differences


def slot_rows(pair: PlannedPair, labels_1: Sequence[str], labels_2: Sequence[str]) -> list[SlotRow]:
    """Label every slot by its own tokens; changed ones as `prompt 1 / prompt 2`."""
    rows = []
    for slot in pair.alignment.slots:
        one, two = (
            " ".join(labels_1[slot.start_1 : slot.stop_1]),
            " ".join(labels_2[slot.start_2 : slot.stop_2]),
        )
        differs = _differs(pair, slot)
        rows.append(SlotRow(f"{one} / {two}" if differs else one, differs))
    return rows


def heat_maps(evidence: Evidence) -> Iterator[Picture]:
    """Draw a heat map for each component and layer, before and after with the same colours."""
    base = evidence.base
    if base is None:
        return
    columns = heat_map_columns(evidence.plan)
    tokenizer = load_tokenizer(evidence.ctx.model_dir)
    pairs = [evidence.plan.measured[column] for column in columns]
    labelled = [
        (pair, slot_rows(pair, *(token_labels(tokenizer, ids) for ids in (pair.ids_1, pair.ids_2))))
        for pair in pairs
        if pair.alignment.slots
    ]
    points = [point for point in SIGNED_POINTS if point in base.points]
    for point in points:
        for layer in picture_layers(evidence.config, evidence.shape.dimensions.layers):
            yield from _heat_maps_at(evidence, labelled, point, layer)


def _heat_maps_at(
    evidence: Evidence,
    labelled: Sequence[tuple[PlannedPair, list[SlotRow]]],
    point: CapturePoint,
    layer: int,
) -> Iterator[Picture]:
    limit = None
    for stage, diagnosis in _stages(evidence):
        panels = [
            HeatPanel(pair.category, pair.prompt_1, pair.prompt_2, rows, differences)
            for pair, rows in labelled
            if (kept := diagnosis.pictures.get((pair.column or 0, point, layer))) is not None
            for differences in (slot_differences(pair.alignment.slots, *kept),)
        ]
        if not panels:
            return
        is_edit = evidence.edited is not None
        picture = token_heat_map(
            point.value, layer, panels, stage=stage if is_edit else None, limit=limit
        )
        limit = picture.data["limit"]
        yield picture


def _stages(evidence: Evidence) -> Iterator[tuple[Stage, Diagnosis]]:
    if evidence.base is not None:
        yield "before", evidence.base
    if evidence.edited is not None:
        yield "after", evidence.edited


def planes(evidence: Evidence) -> Iterator[Picture]:
    """Draw the PCA plane of the first selection pair in each chosen layer, before and after."""
    columns = evidence.plan.columns("selection")
    if not columns:
        return
    pair = evidence.plan.measured[columns[0]]
    tokenizer = load_tokenizer(evidence.ctx.model_dir)
    twins: dict[int, Mapping[str, Any]] = {}
    for stage, diagnosis in _stages(evidence):
        for layer in picture_layers(evidence.config, evidence.shape.dimensions.layers):
            rows = diagnosis.pictures.get((columns[0], PICTURE_POINT, layer))
            if rows is None:
                continue
            activations = _pair_activations(evidence, tokenizer, pair, rows)
            is_edit = evidence.edited is not None
            picture = pca_plane(
                PICTURE_POINT.value,
                layer,
                activations,
                stage=stage if is_edit else None,
                before=twins.get(layer),
            )
            if picture is None:
                when = f", {stage} the edit" if is_edit else ""
                message = f"No PCA picture of layer {layer}{when}: fewer than three tokens."
                evidence.ctx.warn("picture_skipped", message)
                continue
            twins.setdefault(layer, picture.data)
            yield picture


def _pair_activations(
    evidence: Evidence, tokenizer: Any, pair: PlannedPair, rows: tuple[np.ndarray, np.ndarray]
) -> PairActivations:
    """Leave special tokens out, unless asked for: they would own the first axis."""
    special = set() if evidence.config.pca_include_special else set(tokenizer.all_special_ids)
    shown = [
        [position for position, token in enumerate(ids) if token not in special]
        for ids in (pair.ids_1, pair.ids_2)
    ]
    row_1, row_2 = ({position: row for row, position in enumerate(side)} for side in shown)
    labels_1, labels_2 = (token_labels(tokenizer, ids) for ids in (pair.ids_1, pair.ids_2))
    slots = [
        Slot(rows_1=rows_1, rows_2=rows_2, differs=_differs(pair, slot))
        for slot in pair.alignment.slots
        if (rows_1 := [row_1[k] for k in range(slot.start_1, slot.stop_1) if k in row_1])
        and (rows_2 := [row_2[k] for k in range(slot.start_2, slot.stop_2) if k in row_2])
    ]
    return PairActivations(
        tokens_1=[labels_1[position] for position in shown[0]],
        tokens_2=[labels_2[position] for position in shown[1]],
        rows_1=rows[0][shown[0]],
        rows_2=rows[1][shown[1]],
        slots=slots,
    )


def _differs(pair: PlannedPair, slot: AlignedSlot) -> bool:
    """Whether the tokens of a slot differ between the prompts."""
    return pair.ids_1[slot.start_1 : slot.stop_1] != pair.ids_2[slot.start_2 : slot.stop_2]
