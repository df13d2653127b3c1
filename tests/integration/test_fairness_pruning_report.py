"""What the report of a whole job says beside its numbers."""

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.fairness_pruning_jobs import QUIET, Job, job_context, pair, run_job, word_model
from workers.methods.fairness_pruning.controls import SELECTION_ONLY
from workers.methods.fairness_pruning.engine import Engine
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
    assert f"% on selection pairs: {SELECTION_ONLY}" in page_of(job)


def test_filled_up_layers_are_a_warning_and_only_edited_layers_are_counted(
    model_dir: Path, tmp_path: Path
) -> None:
    job = run(model_dir, tmp_path, layers=[0])

    (warning,) = (text for text in job.report["warnings"] if "zero neurons" in text)
    assert "filled with 4 zero neurons" in warning
    assert "as large as before" in warning
    assert "4 neurons in 1 of 3 layers" in page_of(job)


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
