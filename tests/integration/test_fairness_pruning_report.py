"""What the report of a whole job says beside its numbers."""

import hashlib
import html
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import torch

from app.catalog.methods.fairness_pruning import METHOD
from app.catalog.pair_sets import load_pair_set
from app.domain.ids import IdPrefix, format_id, new_id
from tests.fairness_pruning_jobs import QUIET, Job, job_context, pair, run_job, word_model
from workers.methods.fairness_pruning.engine import Engine
from workers.methods.fairness_pruning.reporting import evidence
from workers.methods.fairness_pruning.reporting.edit_words import EXTENSION_NOTE
from workers.methods.fairness_pruning.reporting.metric_texts import MEANINGS
from workers.methods.fairness_pruning.reporting.model_names import requested_on
from workers.methods.fairness_pruning.selecting.controls import NOTHING_REMOVED, SELECTION_ONLY
from workers.runtime.local import run_locally

TAILS = ("was very old", "is happy", "said it", "saw the house", "was in the house", "and a cook")
PAIRS = [pair(f"the man {tail}", f"the woman {tail}") for tail in TAILS]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return word_model(tmp_path_factory.mktemp("model") / "llama")


def page_of(job: Job) -> str:
    return (job.context.out_dir / "report.html").read_text(encoding="utf-8")


def with_card(model_dir: Path, folder: Path, card: str) -> Path:
    """Copy a model and give it a card."""
    shutil.copytree(model_dir, folder)
    (folder / "README.md").write_text(card, encoding="utf-8")
    return folder


def run(model_dir: Path, root: Path, **config: Any) -> Job:
    return run_job(model_dir, root, {**QUIET, "pairs": PAIRS, "fraction": 0.1, **config})


def test_verdict_from_few_held_out_pairs_quotes_the_selection_pairs(
    model_dir: Path, tmp_path: Path
) -> None:
    held_out = [pair(f"a boy {tail}", f"a girl {tail}") for tail in TAILS[:3]]

    job = run(model_dir, tmp_path, holdout_pairs=held_out, controls={"random_seeds": 3})

    assert job.report["verdict"]["wording"] == SELECTION_ONLY
    assert " on selection pairs (total change " in page_of(job)
    assert f"; 6 pairs): {SELECTION_ONLY}." in page_of(job)


def test_filled_up_layers_are_a_warning_and_only_edited_layers_are_counted(
    model_dir: Path, tmp_path: Path
) -> None:
    job = run(model_dir, tmp_path, layers=[0])

    (warning,) = (text for text in job.report["warnings"] if "zero neurons" in text)
    assert "filled with 4 zero neurons" in warning
    assert "as large as before" in warning
    assert "4 neurons removed in 1 of 3 layers" in page_of(job)


def test_a_pair_of_too_few_tokens_is_a_warning_and_no_picture(
    model_dir: Path, tmp_path: Path
) -> None:
    job = run(model_dir, tmp_path, pairs=[pair("man", "woman")], plots=["pca"], plot_layers=[1])

    assert not list((job.context.out_dir / "plots").glob("pca_*"))
    assert ("picture_skipped", "layer 1, before") in [
        (code, message.partition("of ")[2].partition(" the")[0])
        for code, message in job.context.warnings
    ]


@pytest.mark.parametrize(
    ("card", "licence"),
    [
        ("---\nlicense: apache-2.0\n---\n# Base", "license: apache-2.0"),
        ("---\nlicense: [\n---\n# Base", None),
        ("# Base", None),
    ],
    ids=["named", "damaged", "none"],
)
def test_card_inherits_the_licence_that_the_base_names(
    model_dir: Path, tmp_path: Path, card: str, licence: str | None
) -> None:
    base = with_card(model_dir, tmp_path / "base", card)

    job = run(base, tmp_path / "job")

    lines = (job.checkpoint / "README.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("license")] == ([licence] if licence else [])


def test_listed_hashes_are_those_of_the_files_in_the_checkpoint(
    model_dir: Path, tmp_path: Path
) -> None:
    base = with_card(model_dir, tmp_path / "base", "# The base model")

    job = run(base, tmp_path / "job")

    for file in job.report["checkpoint_files"]:
        content = (job.checkpoint / file["path"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == file["sha256"], file["path"]
    assert "The base model" not in (job.checkpoint / "README.md").read_text(encoding="utf-8")


def costs_of(job: Job) -> dict[str, str]:
    """Warnings of what the edit costs, as the job itself has them."""
    costs = ("large_edit", "language_cost")
    return {code: message for code, message in job.context.warnings if code in costs}


@pytest.fixture(scope="module")
def stories(shared_data: Path) -> Path:
    """Return a trained model: only one that has learned something can lose it."""
    return shared_data / "models" / "stories260k-llama"


STORIES = [
    pair(f"Once upon a time, a {first} {tail}", f"Once upon a time, a {second} {tail}")
    for first, second in (("boy", "girl"), ("king", "queen"), ("man", "woman"))
    for tail in ("went to the park to play.", "was very happy to see the big dog.")
]


def test_an_edit_that_costs_language_is_a_warning_of_report_job_and_page(
    stories: Path, tmp_path: Path
) -> None:
    job = run(stories, tmp_path, pairs=STORIES, fraction=0.6)

    costs = costs_of(job)
    perplexity = job.report["language"]["perplexity"]
    change = f"from {perplexity['before']:.4g} to {perplexity['after']:.4g}"
    assert perplexity["after"] > 2 * perplexity["before"]
    assert change in costs["language_cost"]
    assert "smaller `fraction`, or weaken them with mode `scale`" in costs["language_cost"]
    assert "(layer 0: 103 of 172)" in costs["large_edit"]
    assert set(costs.values()) <= set(job.report["warnings"])
    assert change in page_of(job)


def test_a_small_edit_has_no_warning_of_its_cost(stories: Path, tmp_path: Path) -> None:
    job = run(stories, tmp_path, pairs=STORIES, fraction=0.01, mode="scale", scale_factor=0.99)

    assert costs_of(job) == {}


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ({"base_name": "org/base"}, "org/base (output of job_1)"),
        ({}, "the output of job_1"),
    ],
    ids=["known base", "unknown base"],
)
def test_report_on_the_output_of_a_job_names_that_job_and_its_base(
    model_dir: Path, tmp_path: Path, source: dict[str, str], name: str
) -> None:
    context = job_context(model_dir, tmp_path, {**QUIET, "pairs": PAIRS, "fraction": 0.1})
    chained = {"type": "version", "version_id": "mv_1", "job_id": "job_1", **source}
    context.provenance = {**context.provenance, "model": chained}

    run_locally(Engine(), context)

    page = (context.out_dir / "report.html").read_text(encoding="utf-8")
    assert f"Fairness Pruning of {name}</h1>" in page


def card_of(job: Job) -> str:
    return (job.checkpoint / "README.md").read_text(encoding="utf-8")


def assert_nothing_is_claimed(job: Job) -> None:
    """Page, card, rows and report say that nothing was changed, and call nothing improved."""
    assert job.report["nothing_changed"] is True
    assert job.report["tensors_changed"] == []
    assert job.report["verdict"] == {**job.report["verdict"], "wording": NOTHING_REMOVED}
    assert [row.improved for row in job.result.summary] == [None] * len(job.result.summary)
    assert "- debiased" not in card_of(job)
    for text in (page_of(job), card_of(job)):
        assert "Nothing was changed: every tensor of the result is that of the base model" in text
        assert "got better" not in text
        assert "the result is the base model, and can be used as that" in text


def test_job_of_fraction_zero_says_that_nothing_was_changed(
    model_dir: Path, tmp_path: Path
) -> None:
    job = run(model_dir, tmp_path, fraction=0.0)

    assert_nothing_is_claimed(job)
    assert job.result.summary


def test_factor_that_rounds_to_the_same_numbers_changes_nothing(tmp_path: Path) -> None:
    base = word_model(tmp_path / "llama", dtype=torch.bfloat16)

    # bfloat16 has 8 significant bits: a factor nearer to 1 than 2**-9 rounds back.
    job = run(base, tmp_path / "job", mode="scale", scale_factor=0.9999)

    assert_nothing_is_claimed(job)
    assert "the factor is too near to 1 for the precision of the file" in page_of(job)


def test_zeroing_zeroed_neurons_changes_nothing(model_dir: Path, tmp_path: Path) -> None:
    again = {"mode": "zero", "neuron_indices": {"1": [0, 3]}, "fraction": None}
    first = run(model_dir, tmp_path / "first", **again)

    second = run(first.checkpoint, tmp_path / "second", **again)

    assert first.report["nothing_changed"] is False
    assert_nothing_is_claimed(second)


def test_noise_of_a_device_makes_no_improvement_of_an_unchanged_model(
    model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The edit is real, so the values differ, as those of an unchanged model may on a GPU.
    monkeypatch.setattr(evidence, "changes_a_tensor", lambda *_: False)

    job = run(model_dir, tmp_path, fraction=0.5)

    assert any(row.delta for row in job.result.summary)
    assert {row.improved for row in job.result.summary} == {None}


def test_page_tells_every_metric_with_direction_and_finding(
    model_dir: Path, tmp_path: Path
) -> None:
    job = run(model_dir, tmp_path)

    page = page_of(job)
    told = page[page.index('<section id="findings">') : page.index('<section id="results">')]
    articles = [html.unescape(part) for part in told.split('<article class="finding">')[1:]]
    # Perplexity is told beside the metrics of the method.
    assert len(articles) == len(METHOD.metrics) + 1
    for metric, article in zip(METHOD.metrics, articles, strict=False):
        assert f"<h3>{metric.title}</h3>" in article
        assert MEANINGS[metric.name].partition("{")[0] in article
        assert "Lower is better; the ideal is 0." in article
        assert "On 6 selection pairs: " in article


def test_components_of_the_mean_are_those_that_the_family_has(
    model_dir: Path, tmp_path: Path
) -> None:
    gated = run(model_dir, tmp_path)
    plain = run(word_model(tmp_path / "gpt2", "gpt2"), tmp_path / "plain")

    assert "attention output, MLP output, gate projection, up projection" in page_of(gated)
    assert "attention output, MLP output, up projection" in page_of(plain)
    assert "gate projection" not in page_of(plain)
    assert "gate and up projection" not in page_of(plain)


def test_compliance_sheet_of_a_job_names_its_data_and_its_gaps(
    model_dir: Path, tmp_path: Path
) -> None:
    pairs = [{**one, "category": "gender"} for one in PAIRS]

    job = run(model_dir, tmp_path, pairs=pairs)

    sheet = page_of(job)[page_of(job).index('<section class="compliance"') :]
    assert "Pairs of the request" in sheet
    assert "6 selection pairs" in sheet
    assert "The pairs vary gender. Not varied: age, disability, nationality," in sheet
    assert "no selection rates and no error rates by group" in sheet
    for file in [*job.report["checkpoint_files"], *job.report["model_files"]]:
        assert file["sha256"] in sheet


def test_pairs_of_a_built_in_set_are_named_with_version_and_licence(
    stories: Path, tmp_path: Path
) -> None:
    pair_set = load_pair_set("gender")
    pairs = [pair(one.prompt_1, one.prompt_2) for one in pair_set.pairs[:6]]

    job = run(stories, tmp_path, pairs=pairs)

    page = page_of(job)
    assert f"Pair set Gender (gender, version {pair_set.version})" in page
    assert "Apache-2.0" in page
    assert "Pairs of the request" not in page


def test_card_tells_the_story_of_the_page(model_dir: Path, tmp_path: Path) -> None:
    job = run(model_dir, tmp_path)

    card = card_of(job)
    for heading in ("Each metric in a sentence", "Arithmetic or behaviour",
                    "How the difference changes with depth", "What the edit costs",
                    "Compliance: what was not measured"):  # fmt: skip
        assert f"\n## {heading}\n" in card


def test_day_of_the_request_is_that_of_the_job_id() -> None:
    moment = datetime(2026, 11, 30, 23, 59, tzinfo=UTC)
    job_id = format_id(IdPrefix.JOB, new_id(int(moment.timestamp() * 1000)))

    assert requested_on(job_id) == "2026-11-30 (UTC)"
    assert requested_on("local") is None


def test_family_without_a_gate_is_labelled_an_extension(tmp_path: Path) -> None:
    base = word_model(tmp_path / "gpt2", "gpt2")

    job = run(base, tmp_path / "job")

    assert EXTENSION_NOTE in page_of(job)
    assert EXTENSION_NOTE in card_of(job)


def test_family_of_the_article_is_not_labelled(model_dir: Path, tmp_path: Path) -> None:
    job = run(model_dir, tmp_path)

    assert EXTENSION_NOTE not in page_of(job)


def test_padded_and_zeroed_neurons_are_facts_of_the_edit(model_dir: Path, tmp_path: Path) -> None:
    padded = page_of(run(model_dir, tmp_path / "padded", layers=[0]))
    zeroed = page_of(run(model_dir, tmp_path / "zeroed", mode="zero"))

    assert "<dt>Zero neurons added as padding</dt><dd>4</dd>" in padded
    assert "<dt>Zeroed neurons</dt><dd>12, still stored</dd>" in zeroed


def test_requested_and_carried_out_fraction_are_facts_of_the_edit(
    model_dir: Path, tmp_path: Path
) -> None:
    page = page_of(run(model_dir, tmp_path, fraction=0.12))

    # 0.12 of 40 neurons is 4.8, rounded down to 4: 10 %.
    assert "<dt>Fraction asked for</dt><dd>12 %</dd>" in page
    assert "<dt>Fraction changed</dt><dd>10 %</dd>" in page


def test_loss_of_language_is_told_as_worse_among_the_metrics(stories: Path, tmp_path: Path) -> None:
    job = run(stories, tmp_path, pairs=STORIES, fraction=0.6)

    told = page_of(job).partition("<h3>Perplexity on the prompts</h3>")[2]
    result = told.partition('<p class="result ')[2].partition("</p>")[0]
    assert result.startswith("worse")
    assert "On the prompts of 6 pairs: it got worse, " in result
