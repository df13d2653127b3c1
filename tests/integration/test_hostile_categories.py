"""Categories are a stranger's text: they come to pages, cards and pictures, never to file names."""

import json
import re
from pathlib import Path

import pytest

from tests.fairness_pruning_jobs import Job, run_job, word_model

CATEGORIES = (
    "<script>alert(1)</script>",
    "[x](javascript:alert(1))|`a`",
    "../../etc/passwd",
    "__proto__",
    "$\\frac{1}{0}$ {{7*7}}",
    "\U0001f469" * 64,
)
WORDS = ("boy", "girl", "man", "woman", "doctor", "cook", "house")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    root = tmp_path_factory.mktemp("hostile")
    pairs = [
        {"prompt_1": f"the {one} was", "prompt_2": f"the {two} was", "category": category}
        for one, two, category in zip(WORDS, WORDS[1:], CATEGORIES, strict=False)
    ]
    config = {
        "pairs": pairs,
        "diagnose_only": True,
        "plots": ["layer_neuron"],
        "generation": {"max_pairs": 0},
    }
    return run_job(word_model(root / "model"), root, config)


def files(job: Job) -> list[Path]:
    return [path for path in job.context.out_dir.rglob("*") if path.is_file()]


def test_file_names_are_plain(job: Job) -> None:
    names = [path.relative_to(job.context.out_dir).as_posix() for path in files(job)]

    assert len(names) > 10
    assert [
        name for name in names if not re.fullmatch(r"[a-z0-9_]+(/[a-z0-9_]+)?\.\w+", name)
    ] == []


def test_page_shows_markup_as_text(job: Job) -> None:
    page = (job.context.out_dir / "report.html").read_text()

    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert" not in page
    assert 'href="javascript:' not in page


def test_markdown_has_no_link_and_no_tag(job: Job) -> None:
    text = (job.context.out_dir / "report.md").read_text()

    assert "javascript:alert" in text
    assert re.search(r"(?<!\\)\]\(javascript:", text) is None
    assert re.search(r"(?<!\\)<script", text) is None


def test_categories_stay_what_they_are_in_json(job: Job) -> None:
    found = json.loads((job.context.out_dir / "neuron_map.json").read_text())

    text = json.dumps(found, ensure_ascii=False)
    for category in CATEGORIES:
        assert json.dumps(category, ensure_ascii=False) in text
