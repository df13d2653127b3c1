"""Pictures are grouped by kind, in the order of layers, before and after side by side."""

from dataclasses import replace

import pytest

from workers.reports.captions import caption_of, figure_groups
from workers.reports.picture import Picture


def pictures(*names):
    return [Picture(name=name, title=name, alt=name, png=b"", data={}) for name in names]


def test_before_and_after_of_a_layer_share_a_row_in_the_order_of_layers():
    names = ("pca_mlp_output_layer_10", "pca_mlp_output_layer_2_after", "pca_mlp_output_layer_2")

    (group,) = figure_groups(pictures(*names))

    assert [[p.name for p in row] for row in group.pictures] == [
        ["pca_mlp_output_layer_2", "pca_mlp_output_layer_2_after"],
        ["pca_mlp_output_layer_10"],
    ]


def test_pictures_without_a_counterpart_stand_two_in_a_row():
    (group,) = figure_groups(pictures("mean_diff_a", "mean_diff_b", "mean_diff_c"))

    assert [[p.name for p in row] for row in group.pictures] == [
        ["mean_diff_a", "mean_diff_b"],
        ["mean_diff_c"],
    ]


def test_bars_of_one_model_are_not_said_to_be_pairs():
    data = {"before": [1.0], "after": None}
    bars = Picture(name="mean_diff_a", title="", alt="", png=b"", data=data)
    both = replace(bars, data={**data, "after": [0.5]})

    (alone,), (compared,) = figure_groups([bars]), figure_groups([both])

    assert alone.caption.startswith("One bar a layer")
    assert compared.caption.startswith("One pair of bars a layer, base model and edited model")


def test_kinds_come_in_a_fixed_order_and_unknown_ones_last():
    groups = figure_groups(pictures("something", "pca_x", "heatmap_x", "layer_neuron_x"))

    names = [group.pictures[0][0].name for group in groups]
    assert names == ["layer_neuron_x", "heatmap_x", "pca_x", "something"]


@pytest.mark.parametrize(
    "name",
    [
        "forest_bias_metric_mlp", "measured_bias_metric_mlp", "before_after", "controls",
        "amplification", "mean_diff_mlp_output", "heatmap_mlp_output_layer_0",
        "layer_neuron_mlp_output", "neuron_map", "pca_mlp_output_layer_0",
    ],
)  # fmt: skip
def test_every_kind_says_in_a_sentence_how_to_read_it(name):
    caption = caption_of(name)

    assert caption.endswith(".")
    assert len(caption.split()) > 8
