"""Pictures show what their JSON twins hold, and are the same bytes each time."""

import io
import json
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from matplotlib.text import Text
from PIL import Image

from tests.report_samples import METRICS, sample_activations, sample_pictures, sample_rows
from workers.reports.forest import draw_forest, forest_plots
from workers.reports.pca_plot import PairActivations, Slot, draw_pca, pca_plane
from workers.reports.picture import DPI, write_picture
from workers.reports.plots import (
    ControlDots,
    Curve,
    amplification_curves,
    controls_dots,
    draw_amplification,
    draw_controls,
    draw_mean_diff,
    mean_diff_bars,
)

TITLES = {name: info.title for name, info in METRICS.items()}


def strict(text):
    """Parse JSON that must not hold NaN or infinities."""

    def refuse(constant):
        raise AssertionError(f"not JSON: {constant}")

    return json.loads(text, parse_constant=refuse)


def test_bars_are_as_high_as_the_twin_says():
    twin = strict(mean_diff_bars("mlp_output", [0.1, 0.2], [0.05, 0.3], n_pairs=3).twin)

    bars = draw_mean_diff(twin).axes[0].patches

    assert [bar.get_height() for bar in bars] == twin["before"] + twin["after"]


def test_bars_before_and_after_stand_side_by_side():
    twin = mean_diff_bars("mlp_output", [0.1], [0.2], n_pairs=3).data

    before, after = draw_mean_diff(twin).axes[0].patches

    assert before.get_x() + before.get_width() == pytest.approx(after.get_x())


@pytest.mark.parametrize("layers", [1, 5, 80])
def test_every_layer_is_drawn(layers):
    values = np.linspace(0.1, 1, layers)
    twin = mean_diff_bars("mlp_output", values, None, n_pairs=1).data

    axes = draw_mean_diff(twin).axes[0]

    low, high = axes.get_xlim()
    assert len(axes.patches) == layers
    assert low < axes.patches[0].get_x()
    assert axes.patches[-1].get_x() + axes.patches[-1].get_width() < high


def test_amplification_lines_and_bands_are_those_of_the_twin():
    curves = [
        Curve("mlp_output", "before", [0.1, 0.3], [0.05, 0.2], [0.2, 0.4]),
        Curve("mlp_output", "after", [0.1, 0.2]),
    ]
    twin = strict(amplification_curves(curves, threshold=0.1, n_pairs=4).twin)

    axes = draw_amplification(twin).axes[0]

    assert [list(line.get_ydata()) for line in axes.lines[:2]] == [[0.1, 0.3], [0.1, 0.2]]
    assert axes.collections[0].get_paths()[0].vertices[:, 1].max() == 0.4
    assert len(axes.collections) == 1


def test_dots_of_controls_are_those_of_the_twin():
    dots = [ControlDots("held-out pairs", -1.5, [0.5, 2.0], None)]
    twin = strict(controls_dots(dots).twin)

    zero, draws, selection = draw_controls(twin).axes[0].lines

    assert list(zero.get_xdata()) == [0, 0]
    assert list(draws.get_xdata()) == twin["evaluations"][0]["random"]
    assert list(selection.get_xdata()) == [-1.5]


def test_forest_draws_each_value_and_interval_of_the_twin():
    rows = [row for row in sample_rows() if row.metric == "bias_metric_parity"]
    (picture,) = forest_plots(rows, titles=TITLES, units={})
    twin = strict(picture.twin)

    lines = draw_forest(twin).axes[0].lines

    drawn = [list(line.get_xdata()) for line in lines]
    for row in twin["rows"]:
        for stage in ("before", "after"):
            assert [row[stage]] in drawn
            assert row[f"ci95_{stage}"] in drawn


def test_forest_gives_neutral_words_a_mark_and_a_legend_entry_of_their_own():
    row = sample_rows()[0]
    # The interval excludes zero: that alone must not make it a result, nor an unreliable one.
    neutral = replace(row, group="control pairs", ideal=None, improved=None)
    (picture,) = forest_plots([row, neutral], titles=TITLES, units={})

    figure = draw_forest(strict(picture.twin))

    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    markers = [line.get_marker() for line in figure.axes[0].lines if line.get_marker() in "osD"]
    assert legend == ["before", "after: better", "not judged (neutral words)"]
    assert markers == ["o", "o", "o", "D"]
    assert "0 without a reliable change, 1 with neutral words, which is not judged" in picture.alt


def test_forest_leaves_out_rows_without_values_and_survives_none():
    measured = sample_rows()[0]
    rows = [measured, replace(measured, group="unmeasured", after=None)]

    (picture,) = forest_plots(rows, titles=TITLES, units={})

    assert [row["group"] for row in picture.data["rows"]] == [measured.group]
    assert forest_plots(rows[1:], titles=TITLES, units={}) == ()


def test_each_metric_has_a_forest_of_its_own_that_fits_a_phone():
    pictures = forest_plots(sample_rows(), titles=TITLES, units={})

    assert [picture.name for picture in pictures] == [f"forest_{metric}" for metric in METRICS]
    widths = [Image.open(io.BytesIO(picture.png)).width for picture in pictures]
    # Half of them a phone of 360 pixels shows at two pixels a point, with its margins.
    assert max(widths) <= 2 * 330


def test_pca_labels_differing_tokens_in_red_and_bold_in_the_direction_of_the_arrow():
    twin = pca_plane("mlp_output", 8, sample_activations()).data

    labels = {label.get_text(): label for label in draw_pca(twin).axes[0].texts}

    assert labels["boy / girl"].get_fontweight() == "bold"
    assert labels["boy / girl"].get_color() == "#c1121f"
    assert labels["doctor"].get_fontweight() == "normal"


def test_pca_points_are_those_of_the_twin():
    twin = strict(pca_plane("mlp_output", 8, sample_activations()).twin)

    first, second = draw_pca(twin).axes[0].lines

    assert list(first.get_xdata()) == [point["x"] for point in twin["prompt_1"]]
    assert list(second.get_ydata()) == [point["y"] for point in twin["prompt_2"]]


def test_pca_draws_a_changed_span_at_the_mean_of_its_rows():
    rows = np.random.default_rng(0).normal(size=(3, 4))
    pair = PairActivations(
        tokens_1=["a", "b", "c"],
        tokens_2=["a", "d"],
        rows_1=rows,
        rows_2=rows[:2] + 1,
        slots=[Slot([0], [0], differs=False), Slot([1, 2], [1], differs=True)],
    )

    twin = pca_plane("mlp_output", 0, pair).data

    points = [(point["x"], point["y"]) for point in twin["prompt_1"]]
    assert twin["slots"][1]["from"] == pytest.approx(np.mean(points[1:], axis=0).tolist())
    assert twin["slots"][1]["label"] == "bc / d"


def test_axes_after_the_edit_point_where_they_did_before():
    pair = sample_activations()
    before = pca_plane("mlp_output", 0, pair).data
    # Of the mirrored rows the largest loading is positive again: the plain plane is mirrored.
    mirrored = replace(pair, rows_1=-pair.rows_1, rows_2=-pair.rows_2)

    plain = pca_plane("mlp_output", 0, mirrored, stage="after").data
    aligned = pca_plane("mlp_output", 0, mirrored, stage="after", before=before).data

    for axis in "xy":
        earlier, bare, now = (
            [point[axis] for point in (*twin["prompt_1"], *twin["prompt_2"])]
            for twin in (before, plain, aligned)
        )
        assert np.corrcoef(earlier, bare)[0, 1] == pytest.approx(-1)
        assert np.corrcoef(earlier, now)[0, 1] == pytest.approx(1)
    assert (before["axes_flipped"], aligned["axes_flipped"]) == ([False, False], [True, True])
    assert aligned["sign_of_axes"] == "covariance with the coordinates before the edit is positive"


def test_axes_of_a_model_of_another_width_are_not_compared():
    pair = sample_activations()
    before = pca_plane("mlp_output", 0, pair).data
    narrow = replace(pair, rows_1=-pair.rows_1[:, :20], rows_2=-pair.rows_2[:, :20])

    after = pca_plane("mlp_output", 0, narrow, stage="after", before=before).data

    assert after["sign_of_axes"] == "largest loading is positive"
    assert after["axes_flipped"] == [False, False]


def test_labels_of_the_plane_lie_inside_its_frame_and_hide_no_other():
    figure = draw_pca(pca_plane("mlp_output", 8, sample_activations()).data)

    renderer = figure.canvas.get_renderer()
    (axes,) = figure.axes
    boxes = [text.get_window_extent(renderer) for text in axes.texts if text.get_text()]
    assert len(boxes) == 9
    for box in boxes:
        assert axes.bbox.x0 <= box.x0 <= box.x1 <= axes.bbox.x1
        assert axes.bbox.y0 <= box.y0 <= box.y1 <= axes.bbox.y1
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_pca_of_two_rows_is_left_out():
    pair = PairActivations(["a"], ["b"], np.ones((1, 4)), np.zeros((1, 4)), [])

    assert pca_plane("mlp_output", 0, pair) is None


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("token", ["$x^2$", "$\\frac{$", "日本", "\x00\n", "<b>", "a" * 200])
def test_pca_draws_any_token_as_plain_text(token):
    pair = sample_activations()
    hostile = PairActivations(
        [token, *pair.tokens_1[1:]], pair.tokens_2, pair.rows_1, pair.rows_2, pair.slots
    )

    assert pca_plane("mlp_output", 0, hostile).png


def test_labels_of_one_place_do_not_overlap():
    rows = np.vstack([np.zeros((4, 3)), [[5.0, 1.0, 0.0]]])
    words = ["one", "two", "three", "four", "far"]
    slots = [Slot([i], [i], differs=False) for i in range(5)]
    twin = pca_plane("mlp_output", 0, PairActivations(words, words, rows, rows, slots)).data

    figure = draw_pca(twin)

    renderer = figure.canvas.get_renderer()
    boxes = [t.get_window_extent(renderer) for t in figure.axes[0].texts if t.get_text()]
    assert len(boxes) == 5
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])


def test_pictures_are_the_same_bytes_each_time():
    rows = sample_rows()

    first, second = sample_pictures(rows), sample_pictures(rows)

    assert [picture.png for picture in first] == [picture.png for picture in second]
    assert [picture.twin for picture in first] == [picture.twin for picture in second]


def test_pictures_carry_no_name_of_the_drawing_program():
    picture = mean_diff_bars("mlp_output", [0.1], None, n_pairs=1)

    info = Image.open(io.BytesIO(picture.png)).info

    assert "Software" not in info
    assert info["dpi"] == pytest.approx((DPI, DPI), abs=0.1)


def test_no_text_leaves_the_picture():
    rows = [row for row in sample_rows() if row.metric == "bias_metric_parity"]
    (picture,) = forest_plots(rows, titles={"bias_metric_parity": "x " * 60}, units={})
    figure = draw_forest(picture.data)

    figure.canvas.draw()

    renderer = figure.canvas.get_renderer()
    texts = [text for text in figure.findobj(Text) if text.get_text()]
    assert len(texts) > 12
    for box in (text.get_window_extent(renderer) for text in texts):
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.width


def test_a_twin_with_nan_is_refused():
    picture = mean_diff_bars("mlp_output", [0.1], [float("nan")], n_pairs=1)

    with pytest.raises(ValueError, match="not JSON compliant"):
        _ = picture.twin


def test_writing_a_picture_leaves_image_and_twin(tmp_path):
    picture = mean_diff_bars("mlp_output", [0.1], [0.2], n_pairs=1)

    image, twin = write_picture(picture, tmp_path / "plots")

    assert (image.name, twin.name) == ("mean_diff_mlp_output.png", "mean_diff_mlp_output.json")
    assert image.read_bytes() == picture.png
    assert strict(twin.read_text(encoding="utf-8")) == picture.data
