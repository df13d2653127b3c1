"""A job that only diagnoses: the numbers of an edit's "before", and nothing edited."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.fairness_pruning_jobs import Job, job_context, pair, run_job, word_model
from tests.tiny_models import HIDDEN, LAYERS, NEURONS
from workers.methods.fairness_pruning.engine import Engine
from workers.methods.fairness_pruning.measuring.alignment import token_labels
from workers.methods.fairness_pruning.measuring.capture import CapturePoint, capture_points
from workers.methods.fairness_pruning.measuring.diagnosis import PictureRequest, diagnose
from workers.methods.fairness_pruning.measuring.signed_means import SIGNED_POINTS, new_signed_means
from workers.methods.fairness_pruning.measuring.subject import Subject, load_subject, read_plan
from workers.methods.fairness_pruning.reporting.token_pictures import slot_differences, slot_rows
from workers.models.load import load_tokenizer
from workers.runtime.context import Stopped
from workers.runtime.results import early_rows, summary_rows

GENDER = [
    pair("the man was very old", "the woman was very old", category="gender"),
    pair("one day a boy saw the house", "one day a girl saw the house", category="gender"),
    pair("the man said it", "the tall and happy woman said it", category="gender"),
]
SIZE = [
    pair("the big house was red", "the small house was red", category="size"),
    pair("a tall cook was in the house", "a small cook was in the house", category="size"),
]
CONFIG: dict[str, Any] = {
    "pairs": [*GENDER, *SIZE],
    "holdout_pairs": [pair("a man is happy", "a woman is happy", category="gender")],
    "control_pairs": [pair("the cook is red", "the doctor is red")],
    "generation": {"max_pairs": 1, "max_length": 12},
    "plots": ["mean_diff", "pca", "heatmap", "layer_neuron"],
}


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return word_model(tmp_path_factory.mktemp("model") / "llama")


@pytest.fixture(scope="module")
def diagnosed(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Job:
    config = {**CONFIG, "diagnose_only": True}
    return run_job(model_dir, tmp_path_factory.mktemp("diagnosis"), config)


@pytest.fixture(scope="module")
def edited(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Job:
    config = {**CONFIG, "fraction": 0.1, "controls": {"random_seeds": 3}}
    return run_job(model_dir, tmp_path_factory.mktemp("edit"), config)


def twin(job: Job, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (job.context.out_dir / "plots" / f"{name}.json").read_text(encoding="utf-8")
    )
    return found


def test_there_is_no_checkpoint_and_nothing_after(diagnosed: Job) -> None:
    names = {path.name for path in diagnosed.context.out_dir.iterdir()}

    assert names == {
        "report.json", "report.html", "report.md", "layers.json", "neuron_map.json", "plots",
    }  # fmt: skip
    assert diagnosed.result.after == {}
    for row in diagnosed.result.summary:
        assert row.before is not None
        assert (row.after, row.delta, row.improved) == (None, None, None)


def test_metrics_and_intervals_are_those_of_an_edit_before(diagnosed: Job, edited: Job) -> None:
    assert diagnosed.result.before == edited.result.before
    for alone, compared in zip(diagnosed.result.summary, edited.result.summary, strict=True):
        assert (alone.metric, alone.group, alone.n) == (compared.metric, compared.group, compared.n)
        assert (alone.before, alone.ci95_before) == (compared.before, compared.ci95_before)


def test_report_parts_are_those_of_an_edit_before(diagnosed: Job, edited: Job) -> None:
    alone, compared = diagnosed.report, edited.report

    assert alone["amplification"]["before"] == compared["amplification"]["before"]
    for split, stages in alone["layers"].items():
        assert stages["before"] == compared["layers"][split]["before"]
    for one, two in zip(alone["pairs"], compared["pairs"], strict=True):
        for metric in ("bias_metric_parity", "bias_metric_relative"):
            assert one[metric]["before"] == two[metric]["before"]
    ratios = [report["demographic_to_control_ratio"] for report in (alone, compared["controls"])]
    assert ratios[0]["before"] == ratios[1]["before"]


def test_twins_of_pictures_are_those_of_an_edit_before(diagnosed: Job, edited: Job) -> None:
    for name in ("heatmap_mlp_output_layer_1", "layer_neuron_attention_output"):
        alone, compared = twin(diagnosed, name), twin(edited, name)
        assert alone["panels"] == compared["panels"]
        assert alone["limit"] == compared["limit"]
        assert twin(edited, f"{name}_after")["limit"] == compared["limit"]


def test_an_edit_draws_every_picture_before_and_after(edited: Job) -> None:
    names = {path.stem for path in (edited.context.out_dir / "plots").glob("*.png")}

    twins = {path.stem for path in (edited.context.out_dir / "plots").glob("*.json")}
    expected = {f"layer_neuron_{point}" for point in ("mlp_output", "attention_output")}
    layers = range(LAYERS)
    expected |= {f"heatmap_{p.value}_layer_{layer}" for p in SIGNED_POINTS for layer in layers}
    assert names == twins
    assert expected | {f"{name}_after" for name in expected} <= names
    assert {"neuron_map", "amplification", "forest_bias_metric_parity"} <= names


def test_a_diagnosis_alone_draws_all_pictures_by_default(diagnosed: Job) -> None:
    config = {name: value for name, value in CONFIG.items() if name != "plots"}

    context = job_context(Path(), Path(), {**config, "diagnose_only": True})

    assert context.config.plots == ("mean_diff", "pca", "heatmap", "layer_neuron")


def test_the_sentence_names_the_onset(diagnosed: Job) -> None:
    found = diagnosed.report["amplification"]["before"]

    assert found["onset"] is not None
    assert f"layer {found['onset']['layer']} " in found["sentence"]
    page = (diagnosed.context.out_dir / "report.html").read_text(encoding="utf-8")
    # The page binds numbers to their units.
    assert found["sentence"] in page.replace("\N{NO-BREAK SPACE}", " ")


def test_the_page_claims_nothing_about_an_edit(diagnosed: Job) -> None:
    page = (diagnosed.context.out_dir / "report.html").read_text()

    assert "What was measured" in page
    for absent in ("What improved", "Before and after", "What the controls say"):
        assert absent not in page


def test_page_says_how_many_neurons_a_set_has_and_why(diagnosed: Job, edited: Job) -> None:
    alone, compared = (
        (job.context.out_dir / "report.html").read_text(encoding="utf-8").replace("\xa0", " ")
        for job in (diagnosed, edited)
    )

    assert "but at least one, since this job takes none out)" in alone
    assert "(as many as this job takes out of the layer)" in compared


def test_page_of_a_diagnosis_has_a_sheet_of_its_own_without_an_edit(diagnosed: Job) -> None:
    page = (diagnosed.context.out_dir / "report.html").read_text(encoding="utf-8")

    sheet = page[page.index('id="compliance"') : page.index('id="reproduce"')]
    for part in ("Scope", "Data used", "What was not measured", "Who can check what, and how"):
        assert part in sheet
    assert "none: the model was read and not changed" in sheet
    assert "Weights after" not in sheet
    assert "Claim against chance" not in sheet


def test_an_edit_reports_the_reactions_and_components_of_a_diagnosis(
    diagnosed: Job, edited: Job
) -> None:
    assert edited.report["reactions"] == diagnosed.report["reactions"]
    assert edited.report["components"] == diagnosed.report["components"]


def test_first_phase_offers_the_before_of_the_final_table(model_dir: Path, edited: Job) -> None:
    context = replace(edited.context, scratch_dir=edited.context.scratch_dir.parent / "again")

    rows = early_rows(Engine().evaluate_before(context).state)

    before = [row for row in summary_rows(edited.result.summary) if row.stage == "before"]
    assert rows == before != []


def test_reactions_rank_the_neurons_of_every_layer(diagnosed: Job) -> None:
    layers = diagnosed.report["reactions"]["layers"]

    assert [entry["layer"] for entry in layers] == list(range(LAYERS))
    for entry in layers:
        scores = [neuron["score"] for neuron in entry["neurons"]]
        assert scores == sorted(scores, reverse=True)
        assert entry["max_score"] == scores[0]
        assert all(1 <= neuron["importance_rank"] <= NEURONS for neuron in entry["neurons"])


@pytest.mark.parametrize("family", ["mixtral", "deepseek_v3"])
def test_a_family_of_experts_is_measured_without_its_neurons(family: str, tmp_path: Path) -> None:
    folder = word_model(tmp_path / "model", family)

    job = run_job(folder, tmp_path, {**CONFIG, "diagnose_only": True, "plots": []})

    components = job.report["components"]
    assert components["recorded"] == ["input_norm", "attention_output", "mlp_output"]
    assert components["missing_from_parity"] == ["gate_proj", "up_proj", "down_proj"]
    assert job.report["reactions"] is None
    assert job.report["neuron_map"] is None
    for found in job.report["pairs"]:
        parts = [found["components"][name]["before"] for name in components["in_parity"]]
        # The same means in another order of summation.
        assert found["bias_metric_parity"]["before"] == pytest.approx(np.mean(parts), rel=1e-12)


def open_subject(model_dir: Path, root: Path, pairs: list[dict[str, Any]]) -> Subject:
    context = job_context(model_dir, root, {**CONFIG, "pairs": pairs, "fraction": 0.1})
    return load_subject(context, model_dir, read_plan(context))


def signed_means(subject: Subject) -> np.ndarray:
    plan = subject.plan
    signed = new_signed_means(
        SIGNED_POINTS, layers=LAYERS, categories=len(plan.categories), width=HIDDEN, device="cpu"
    )
    diagnose(
        subject.decoder,
        subject.batches,
        n_pairs=len(plan.measured),
        points=SIGNED_POINTS,
        signed=signed,
    )
    counts = [len(plan.columns("selection", name)) for name in plan.categories]
    return signed.means(np.array(counts))


def test_signed_maps_flip_when_the_prompts_are_swapped(model_dir: Path, tmp_path: Path) -> None:
    swapped = [{**p, "prompt_1": p["prompt_2"], "prompt_2": p["prompt_1"]} for p in GENDER]

    forth = signed_means(open_subject(model_dir, tmp_path / "a", [*GENDER, *SIZE]))
    back = signed_means(open_subject(model_dir, tmp_path / "b", [*swapped, *SIZE]))

    # The batches are the same ones, so every rounding is too. Categories: gender, size.
    assert np.array_equal(forth[:, 0], -back[:, 0])
    assert np.array_equal(forth[:, 1], back[:, 1])
    assert np.abs(forth).max() > 0


def test_signed_maps_equal_a_plain_mean_over_slots_and_pairs(
    model_dir: Path, tmp_path: Path
) -> None:
    subject = open_subject(model_dir, tmp_path, [*GENDER, *SIZE])
    plan = subject.plan
    keys = frozenset((point, layer) for point in SIGNED_POINTS for layer in range(LAYERS))
    request = PictureRequest(keys=keys, pairs=frozenset(range(len(plan.measured))))
    kept = diagnose(
        subject.decoder,
        subject.batches,
        n_pairs=len(plan.measured),
        points=SIGNED_POINTS,
        pictures=request,
    ).pictures

    found = signed_means(subject)

    for position, point in enumerate(SIGNED_POINTS):
        for number, category in enumerate(plan.categories):
            columns = plan.columns("selection", category)
            for layer in range(LAYERS):
                means = []
                for column in columns:
                    one, two = (side.astype(np.float64) for side in kept[column, point, layer])
                    slots = plan.measured[column].alignment.slots
                    steps = [
                        two[slot.start_2 : slot.stop_2].mean(axis=0)
                        - one[slot.start_1 : slot.stop_1].mean(axis=0)
                        for slot in slots
                    ]
                    means.append(np.mean(steps, axis=0))
                # Activations of fp32 are subtracted in fp32 there and in fp64 here.
                assert found[position, number, layer] == pytest.approx(
                    np.mean(means, axis=0), abs=1e-6
                )


def test_the_largest_difference_of_the_first_gate_lies_at_the_changed_word(
    model_dir: Path, tmp_path: Path
) -> None:
    # One word for one word: longer spans also move what follows them to other positions.
    subject = open_subject(model_dir, tmp_path, [*GENDER[:2], *SIZE])
    key = (CapturePoint.GATE_PROJ, 0)
    columns = [p.column for p in subject.plan.measured if p.split == "selection"]
    found = diagnose(
        subject.decoder,
        subject.batches,
        n_pairs=len(subject.plan.measured),
        points=capture_points(subject.shape.layout),
        pictures=PictureRequest(keys=frozenset({key}), pairs=frozenset(columns)),
    )
    tokenizer = load_tokenizer(model_dir)

    for column in columns:
        planned = subject.plan.measured[column]
        labels = [token_labels(tokenizer, ids) for ids in (planned.ids_1, planned.ids_2)]
        rows = slot_rows(planned, *labels)
        differences = slot_differences(planned.alignment.slots, *found.pictures[column, *key])
        strongest = int(differences.mean(axis=1).argmax())
        assert rows[strongest].differs
        assert (
            rows[strongest].label
            == {
                "the man was very old": "man / woman",
                "one day a boy saw the house": "boy / girl",
                "the big house was red": "big / small",
                "a tall cook was in the house": "tall / small",
            }[planned.prompt_1]
        )


def test_heat_maps_hold_every_slot_with_its_own_token(diagnosed: Job) -> None:
    panels = twin(diagnosed, "heatmap_mlp_output_layer_0")["panels"]

    assert [panel["category"] for panel in panels] == ["gender", "size"]
    labels = [slot["label"] for slot in panels[0]["slots"]]
    assert labels == ["<s>", "the", "man / woman", "was", "very", "old"]
    assert np.shape(panels[0]["values"]) == (6, HIDDEN)
    assert np.abs(panels[0]["values"][:2]).max() < 1e-5


def test_a_diagnosis_goes_on_after_a_stop_with_the_same_files(
    model_dir: Path, tmp_path: Path, diagnosed: Job
) -> None:
    config = {**CONFIG, "diagnose_only": True}
    with pytest.raises(Stopped):
        run_job(model_dir, tmp_path, config, stop_after_polls=diagnosed.context.polls // 2)

    again = run_job(model_dir, tmp_path, config)

    for path in diagnosed.context.out_dir.rglob("*.json"):
        name = path.relative_to(diagnosed.context.out_dir)
        assert (again.context.out_dir / name).read_bytes() == path.read_bytes(), name


def test_the_stored_phases_hold_no_full_activation_that_no_picture_needs(
    model_dir: Path, tmp_path: Path
) -> None:
    config = {**CONFIG, "diagnose_only": True, "plots": ["layer_neuron"], "plot_layers": [1]}
    job = run_job(model_dir, tmp_path, config)

    stored = load_file(
        job.context.scratch_dir / "phases" / "evaluating_before" / "arrays.safetensors"
    )

    assert [name for name in stored if name.startswith("picture/")] == []
    assert stored["signed"].shape == (2, 2, LAYERS, HIDDEN)
