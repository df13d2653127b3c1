"""Heat maps, layer maps and the neuron map show what their JSON twins hold."""

import json

import numpy as np
import pytest

from tests.report_samples import METRICS, sample_rows
from workers.reports.heat_map import HeatPanel, SlotRow, draw_heat_map, token_heat_map
from workers.reports.layer_map import LayerPanel, draw_layer_map, layer_position_map
from workers.reports.measured_forest import draw_measured, measured_forests
from workers.reports.neuron_plot import Overlap, draw_neuron_map, neuron_map_picture
from workers.reports.raster import binned

# The twin has six significant digits.
DIGITS = 1e-5


def heat_panel(width=300, slots=5, changed=2, label="tok"):
    values = np.abs(np.random.default_rng(width).normal(size=(slots, width)))
    values[:changed] = 0
    rows = [SlotRow(f"{label}{k}", k == changed) for k in range(slots)]
    return HeatPanel("gender", "The boy", "The girl", rows, values)


def layer_panel(category="gender", layers=4, width=300):
    rng = np.random.default_rng(len(category))
    return LayerPanel(category, 3, rng.normal(size=(layers, width)))


def neuron_picture(layers=4, categories=("gender", "race")):
    sets = [
        {name: [1, 10 * layer + i] for i, name in enumerate(categories)} for layer in range(layers)
    ]
    pairs = [(a, b) for i, a in enumerate(categories) for b in categories[i + 1 :]]
    overlaps = [Overlap(pair, 0.33, 0.01, 0.05) for pair in pairs]
    counts = dict.fromkeys(categories, 4)
    return neuron_map_picture(categories, sets, overlaps, neurons=200, pair_counts=counts)


def test_cells_of_a_heat_map_are_the_bins_of_the_differences():
    panel = heat_panel()
    twin = json.loads(token_heat_map("mlp_output", 3, [panel]).twin)

    image = draw_heat_map(twin).axes[0].images[0].get_array().data

    assert image == pytest.approx(np.array(twin["panels"][0]["values"]))
    assert image == pytest.approx(binned(panel.differences), rel=DIGITS)


def test_the_last_cell_of_a_heat_map_is_as_narrow_as_its_bin():
    twin = token_heat_map("mlp_output", 3, [heat_panel(width=257)]).data

    axes = draw_heat_map(twin).axes[0]

    assert axes.get_xlim() == (0, 257)
    # 86 bins of three positions, of which the last one would end at 258.
    assert axes.images[0].get_extent()[1] == 258


def test_changed_tokens_of_a_heat_map_are_bold_and_red():
    twin = token_heat_map("mlp_output", 3, [heat_panel()]).data

    labels = draw_heat_map(twin).axes[0].get_yticklabels()

    assert [label.get_text() for label in labels] == [f"tok{k}" for k in range(5)]
    assert [label.get_fontweight() for label in labels][1:4] == ["normal", "bold", "normal"]


def test_a_long_prompt_labels_its_changed_tokens():
    twin = token_heat_map("mlp_output", 3, [heat_panel(slots=300, changed=211)]).data

    labels = [text.get_text() for text in draw_heat_map(twin).axes[0].get_yticklabels()]

    assert "tok211" in labels
    assert len(labels) < 100


def test_the_picture_after_keeps_the_colours_of_the_one_before():
    before = token_heat_map("mlp_output", 3, [heat_panel()], stage="before")

    after = token_heat_map(
        "mlp_output", 3, [heat_panel(label="x")], stage="after", limit=before.data["limit"]
    )

    assert after.name == "heatmap_mlp_output_layer_3_after"
    assert after.data["limit"] == before.data["limit"]


def test_a_layer_map_has_symmetric_limits_and_every_layer():
    twin = json.loads(layer_position_map("mlp_output", [layer_panel(layers=7)]).twin)

    image = draw_layer_map(twin).axes[0].images[0]

    assert image.get_clim() == (-twin["limit"], twin["limit"])
    assert image.get_array().data == pytest.approx(np.array(twin["panels"][0]["values"]))
    assert image.get_array().shape == (7, 100)


def test_a_layer_map_has_a_panel_for_each_category():
    panels = [layer_panel("gender"), layer_panel("race")]
    figure = draw_layer_map(layer_position_map("attention_output", panels).data)

    titles = [axes.get_title(loc="left") for axes in figure.axes]

    assert titles == ["gender (3 pairs)", "race (3 pairs)", ""]


def test_the_neuron_map_marks_every_neuron_and_bars_the_shared_ones():
    picture = neuron_picture()
    axes = draw_neuron_map(json.loads(picture.twin)).axes[0]

    marks = [line for line in axes.lines if line.get_linestyle() == "None"]
    bars = axes.collections[0].get_segments()

    assert [len(line.get_xdata()) for line in marks] == [8, 8]
    # Neuron 1 is in both sets of each layer; in layer 0 the second set is {1} twice over.
    assert sorted({segment[0][0] for segment in bars}) == [1]


def test_overlaps_stand_beside_the_range_of_random_sets():
    axes = draw_neuron_map(neuron_picture().data).axes[1]

    assert [bar.get_width() for bar in axes.patches] == [0.05]
    assert [list(line.get_xdata()) for line in axes.lines] == [[0.01, 0.01], [0.33]]


def test_a_neuron_map_of_one_category_has_no_overlap():
    assert len(draw_neuron_map(neuron_picture(categories=("gender",)).data).axes) == 1


def test_measured_values_and_intervals_are_those_of_the_twin():
    rows = [row for row in sample_rows() if row.metric == "bias_metric_parity"]
    titles = {name: info.title for name, info in METRICS.items()}
    (picture,) = measured_forests(rows, titles=titles, units={})
    twin = json.loads(picture.twin)

    drawn = [list(line.get_xdata()) for line in draw_measured(twin).axes[0].lines]

    for row in twin["rows"]:
        assert [row["value"]] in drawn
        assert row["ci95"] in drawn


@pytest.mark.parametrize("layers", [1, 30, 80])
@pytest.mark.parametrize("kind", ["layers", "neurons"])
def test_no_text_leaves_the_picture_at_any_depth(layers, kind):
    names = ("gender", "race", "religion", "nationality", "age")
    figure = (
        draw_layer_map(
            layer_position_map("mlp_output", [layer_panel(n, layers) for n in names]).data
        )
        if kind == "layers"
        else draw_neuron_map(neuron_picture(layers, names).data)
    )

    figure.canvas.draw()

    # In inches; ticks that lie outside of the axes' view are not drawn and not counted.
    drawn = figure.get_tightbbox(figure.canvas.get_renderer())
    width, height = figure.get_size_inches()
    assert drawn.x0 >= 0
    assert drawn.x1 <= width
    assert drawn.y0 >= 0
    assert drawn.y1 <= height


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("token", ["$x^2$", "\\frac{", "日本", "\x00\n", "a" * 200])
def test_heat_maps_draw_any_token_as_plain_text(token):
    panel = heat_panel()
    hostile = HeatPanel(
        f"{token} category", token, token, [SlotRow(token, True)] * 5, panel.differences
    )

    assert token_heat_map("mlp_output", 0, [hostile]).png


def test_pictures_are_the_same_bytes_each_time():
    first = [token_heat_map("mlp_output", 1, [heat_panel()]), neuron_picture()]
    second = [token_heat_map("mlp_output", 1, [heat_panel()]), neuron_picture()]

    assert [picture.png for picture in first] == [picture.png for picture in second]
