"""The pictures that optiPfair draws of one pair, drawn by this project's functions."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bench.our_diagnosis import Loaded
from workers.methods.fairness_pruning.measuring.alignment import token_labels
from workers.methods.fairness_pruning.measuring.capture import CapturePoint
from workers.methods.fairness_pruning.measuring.diagnosis import Diagnosis, PictureRequest
from workers.methods.fairness_pruning.measuring.pair_plan import PairPlan, PlannedPair
from workers.methods.fairness_pruning.reporting.token_pictures import slot_differences, slot_rows
from workers.reports.heat_map import HeatPanel, token_heat_map
from workers.reports.pca_plot import PairActivations, Slot, pca_plane
from workers.reports.picture import Picture, write_picture
from workers.reports.plots import mean_diff_bars

PLANE_POINTS = (CapturePoint.MLP_OUTPUT, CapturePoint.ATTENTION_OUTPUT)
SHOWN_POINTS = (*PLANE_POINTS, CapturePoint.GATE_PROJ, CapturePoint.UP_PROJ)


def draw_all(loaded: Loaded, folder: Path) -> int:
    """Measure the first pair in one forward, draw everything and count the pictures."""
    plan = loaded.plan()
    pair = plan.measured[0]
    first = replace(plan, pairs=(pair,))
    layers = loaded.shape.dimensions.layers
    keys = frozenset((point, layer) for point in SHOWN_POINTS for layer in range(layers))
    request = PictureRequest(keys=keys, pairs=frozenset({0}))
    diagnosis = loaded.diagnosis(first, pictures=request)
    for picture in pictures(loaded, first, diagnosis):
        write_picture(picture, folder)
    return len(list(folder.glob("*.png")))


def pictures(loaded: Loaded, plan: PairPlan, diagnosis: Diagnosis) -> Iterator[Picture]:
    """Draw bars, heat maps and planes, one after the other."""
    pair = plan.measured[0]
    labels = [token_labels(loaded.tokenizer, ids) for ids in (pair.ids_1, pair.ids_2)]
    for point in SHOWN_POINTS:
        values = diagnosis.of("mean", point)[:, 0].tolist()
        yield mean_diff_bars(point.value, values, None, n_pairs=1)
    for (_, point, layer), rows in diagnosis.pictures.items():
        differences = slot_differences(pair.alignment.slots, *rows)
        panel = HeatPanel(
            pair.category, pair.prompt_1, pair.prompt_2, slot_rows(pair, *labels), differences
        )
        yield token_heat_map(point.value, layer, [panel])
        if point in PLANE_POINTS:
            plane = pca_plane(
                point.value, layer, pair_activations(loaded, pair, labels, rows), stage=None
            )
            assert plane is not None
            yield plane


def pair_activations(
    loaded: Loaded, pair: PlannedPair, labels: list[list[str]], rows: tuple
) -> PairActivations:
    """Leave special tokens out, as the report does; prompts of equal length only."""
    special = set(loaded.tokenizer.all_special_ids)
    shown = [n for n, token in enumerate(pair.ids_1) if token not in special]
    return PairActivations(
        tokens_1=[labels[0][n] for n in shown],
        tokens_2=[labels[1][n] for n in shown],
        rows_1=rows[0][shown],
        rows_2=rows[1][shown],
        slots=[Slot([row], [row], pair.ids_1[n] != pair.ids_2[n]) for row, n in enumerate(shown)],
    )
