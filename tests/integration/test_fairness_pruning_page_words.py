"""Words of the page that depend on what the job did, and where on the page they stand."""

from pathlib import Path
from typing import Any

import pytest

from tests.fairness_pruning_jobs import QUIET, pair, run_job, word_model

TAILS = ("was very old", "is happy", "said it")
PAIRS = [pair(f"the man {tail}", f"the woman {tail}", category="gender") for tail in TAILS]
NEUTRAL = [pair("the big house was red", "the small house was red")]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return word_model(tmp_path_factory.mktemp("model") / "llama")


def page(model_dir: Path, root: Path, **config: Any) -> str:
    fields = {**QUIET, "pairs": PAIRS, "fraction": 0.1, **config}
    job = run_job(model_dir, root, fields)
    return (job.context.out_dir / "report.html").read_text(encoding="utf-8")


def part(page: str, name: str) -> str:
    """Cut out one section of a page, given by its id."""
    return page.partition(f'id="{name}"')[2].partition("</section>")[0]


@pytest.mark.parametrize(
    ("mode", "done"),
    [
        ({"mode": "prune"}, "takes them out"),
        ({"mode": "zero"}, "sets them to zero"),
        ({"mode": "scale", "scale_factor": 0.5}, "weakens them"),
    ],
    ids=["prune", "zero", "scale"],
)
def test_the_method_is_described_in_the_mode_of_the_job(
    model_dir: Path, tmp_path: Path, mode: dict[str, Any], done: str
) -> None:
    assert f"for everything else, and {done}." in part(
        page(model_dir, tmp_path, **mode), "in-short"
    )


def test_weakened_neurons_are_not_said_to_go(model_dir: Path, tmp_path: Path) -> None:
    scaled = page(model_dir, tmp_path, mode="scale", scale_factor=0.5)

    assert "The neurons that were weakened were chosen" in scaled
    assert "The neurons that go were chosen" not in scaled


def test_what_concerns_storage_stands_with_the_change_and_not_among_warnings(
    model_dir: Path, tmp_path: Path
) -> None:
    padded = page(model_dir, tmp_path, layers=[0])

    assert "zero neurons, because a model has one size" in part(padded, "changed")
    assert "zero neurons, because" not in part(padded, "warnings")


def test_first_number_is_the_change_on_the_judged_pairs_and_parameters_are_last(
    model_dir: Path, tmp_path: Path
) -> None:
    held_out = [pair(f"a boy {tail}", f"a girl {tail}") for tail in (*TAILS, "was red", "saw it")]

    numbers = page(model_dir, tmp_path, holdout_pairs=held_out, control_pairs=NEUTRAL)

    cards = numbers.partition('aria-label="Headline numbers"')[2].partition("</section>")[0]
    labels = [text.partition("</p>")[0] for text in cards.split('<p class="label">')[1:]]
    # QUIET runs no controls, and their absence outranks every number.
    assert labels[:2] == ["Controls", "Difference on held-out pairs"]
    assert labels[-1] == "Parameters"


def test_continued_prompts_are_named_by_category_and_kind(model_dir: Path, tmp_path: Path) -> None:
    generation = {"max_pairs": 1, "max_new_tokens": 2, "max_length": None}

    written = part(page(model_dir, tmp_path, generation=generation), "generations")

    assert "gender, selection pair</span>" in written
    assert "pair 0" not in written
