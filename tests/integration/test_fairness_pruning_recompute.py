"""Every interval and mean of a report follows from report.json alone, by its documented rule."""

import zlib
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tests.fairness_pruning_jobs import QUIET, pair, run_job, word_model

TAILS = ("was very old", "is happy", "said it", "saw the house", "was in the house", "and a cook")
SEED = 3


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("recompute")
    config = {
        **QUIET,
        "pairs": [pair(f"the man {tail}", f"the woman {tail}") for tail in TAILS],
        "holdout_pairs": [pair(f"a boy {tail}", f"a girl {tail}") for tail in TAILS],
        "control_pairs": [pair(f"a red house {tail}", f"a big house {tail}") for tail in TAILS],
        "fraction": 0.2,
        "attention_heads": {"heads_per_layer": 1},
        "controls": {"random_seeds": 3},
    }
    return run_job(word_model(root / "model"), root, config, seed=SEED).report


def recomputed(report: dict[str, Any], name: str, values: list[float]) -> list[float]:
    """Return the 95 % interval of a mean by the rule that `statistics` states, and scipy alone."""
    rule = report["statistics"]
    assert rule["generator"] == "numpy.random.default_rng([seed, zlib.crc32(name)])"
    found = stats.bootstrap(
        (np.array(values),),
        np.mean,
        n_resamples=rule["resamples"],
        confidence_level=rule["confidence"],
        method="percentile",
        rng=np.random.default_rng([report["job"]["seed"], zlib.crc32(name.encode())]),
    ).confidence_interval
    return [found.low, found.high]


def held_out(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [entry for entry in report["pairs"] if entry["split"] == "holdout"]


def reductions(report: dict[str, Any], name: str) -> list[float]:
    """Return the behavioural reduction of each held-out pair under a control."""
    return [entry["controls"][name]["behavioural"] for entry in held_out(report)]


def selection_of(report: dict[str, Any]) -> list[float]:
    return [entry["bias_metric_parity"]["behavioural"] for entry in held_out(report)]


def test_the_lead_over_the_random_mean_can_be_recomputed(report: dict[str, Any]) -> None:
    random = np.mean([reductions(report, f"random_{draw}") for draw in range(3)], axis=0)

    name = report["statistics"]["generators"]["interval_against_random_mean"]
    found = recomputed(report, name, np.array(selection_of(report)) - random)

    # The same resamples of the same numbers; sums may differ in the last digit.
    assert report["verdict"]["interval_against_random_mean"] == pytest.approx(found, rel=1e-9)


def test_the_lead_over_removal_by_importance_can_be_recomputed(report: dict[str, Any]) -> None:
    lead = np.array(selection_of(report)) - reductions(report, "importance_only")

    name = report["statistics"]["generators"]["interval_against_importance_only"]
    found = recomputed(report, name, lead)

    assert report["verdict"]["interval_against_importance_only"] == pytest.approx(found, rel=1e-9)


def test_the_interval_of_the_loss_can_be_recomputed(report: dict[str, Any]) -> None:
    losses = [entry["loss"] for entry in report["pairs"]]

    name = report["statistics"]["generators"]["ci95_loss_increase"]
    found = recomputed(report, name, [loss["after"] - loss["before"] for loss in losses])

    assert report["language"]["ci95_loss_increase"] == pytest.approx(found, rel=1e-9)
    assert report["language"]["loss"]["random_0"] == pytest.approx(
        np.mean([loss["random_0"] for loss in losses]), rel=1e-12
    )


def test_the_intervals_of_the_summary_can_be_recomputed(report: dict[str, Any]) -> None:
    (row,) = (
        row
        for row in report["summary"]
        if row["metric"] == "bias_metric_mlp" and row["group"] == "held-out pairs"
    )
    values = [entry["bias_metric_mlp"] for entry in held_out(report)]

    pattern = report["statistics"]["generators"]["summary"]
    name = pattern.replace("METRIC", row["metric"]).replace("GROUP", row["group"])
    found = recomputed(report, name, [value["after"] - value["before"] for value in values])

    assert row["ci95_delta"] == pytest.approx(found, rel=1e-9)


def test_the_means_of_every_control_are_those_of_its_pairs(report: dict[str, Any]) -> None:
    told = report["controls"]["groups"]["holdout"]["after"]

    for name in ("importance_only", "random_0", "random_1", "random_2"):
        entries = [entry["controls"][name] for entry in held_out(report)]
        for part in ("mechanical", "behavioural"):
            mean = np.mean([entry[part] for entry in entries])
            assert told[name][part] == pytest.approx(mean, rel=1e-9, abs=1e-15), (name, part)
        after = np.mean([entry["after"] for entry in entries])
        assert told[name]["bias_metric_parity"] == pytest.approx(after, rel=1e-12), name


def test_what_controls_share_with_the_selection_is_counted(report: dict[str, Any]) -> None:
    controls, heads = report["controls"], report["attention_heads"]

    for name, shared in controls["shared_with_selection"].items():
        neurons = sum(
            neuron in report["removed"][layer]
            for layer, removed in controls["removed"][name].items()
            for neuron in removed
        )
        both = sum(
            head in heads["removed"][layer]
            for layer, removed in controls["removed_heads"][name].items()
            for head in removed
        )
        assert shared == {"neurons": neurons, "heads": both}, name
    assert controls["removed_heads"] == heads["controls"]


def test_the_interval_of_the_behavioural_part_can_be_recomputed(report: dict[str, Any]) -> None:
    told = report["controls"]["groups"]["holdout"]["ci95_behavioural"]

    pattern = report["statistics"]["generators"]["ci95_behavioural"].replace("SPLIT", "holdout")
    for name, values in (
        ("selection", selection_of(report)),
        ("random_1", reductions(report, "random_1")),
    ):
        found = recomputed(report, pattern.replace("NAME", name), values)
        assert told[name] == pytest.approx(found, rel=1e-9), name


def test_the_interval_of_the_ratio_covers_resamples_of_both_kinds(report: dict[str, Any]) -> None:
    kinds = [
        np.array([e["bias_metric_parity"]["after"] for e in report["pairs"] if e["split"] == split])
        for split in ("selection", "control")
    ]
    rng = np.random.default_rng(0)

    means = [rng.choice(values, (20000, len(values))).mean(axis=1) for values in kinds]
    low, high = np.percentile(means[0] / means[1], [2.5, 97.5])

    told = report["controls"]["ci95_demographic_to_control_ratio"]["after"]
    ratio = report["controls"]["demographic_to_control_ratio"]["after"]
    assert told[0] < ratio < told[1]
    # An end of 2,000 resamples has a Monte Carlo error of about 3 % of the half-width.
    assert told == pytest.approx([low, high], abs=0.1 * (high - low))
