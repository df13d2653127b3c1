"""Facts that page and card give of a job: purpose, preset, controls."""

from pathlib import Path
from typing import Any

import pytest

from tests.fairness_pruning_jobs import QUIET, Job, job_context, pair, run_job, word_model
from workers.methods.fairness_pruning.engine import Engine
from workers.runtime.local import run_locally

TAILS = ("was very old", "is happy", "said it")
PAIRS = [pair(f"the man {tail}", f"the woman {tail}") for tail in TAILS]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return word_model(tmp_path_factory.mktemp("model") / "llama")


def page_of(job: Job) -> str:
    return page_in(job.context.out_dir)


def page_in(folder: Path) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


def run(model_dir: Path, root: Path, **config: Any) -> Job:
    return run_job(model_dir, root, {**QUIET, "pairs": PAIRS, **config})


@pytest.mark.parametrize(
    ("labels", "purpose"),
    [({}, "not stated in the request"), ({"purpose": "answering letters"}, "answering letters")],
    ids=["no label", "label"],
)
def test_the_name_of_a_job_is_not_its_purpose(
    model_dir: Path, tmp_path: Path, labels: dict[str, str], purpose: str
) -> None:
    context = job_context(model_dir, tmp_path, {**QUIET, "pairs": PAIRS, "fraction": 0.1})
    context.provenance = {
        **context.provenance,
        "job_name": "third try",
        "resolved_spec": {"labels": labels},
    }

    run_locally(Engine(), context)

    page = page_in(context.out_dir)
    assert "<dt>Name of the job</dt><dd>third try</dd>" in page
    assert f"<dt>Purpose</dt><dd>{purpose}</dd>" in page


def test_a_preset_is_listed_with_what_the_request_set_otherwise(
    model_dir: Path, tmp_path: Path
) -> None:
    job = run(model_dir, tmp_path, preset="article", fraction=0.125, mode="zero")

    page = page_of(job)
    kept = "bias_point gate_up, token_reduction abs_then_mean, importance ppm, bias_weight 0.5"
    assert f"<dt>Settings of the preset</dt><dd>{kept}</dd>" in page
    assert "<dd>fraction 0.125 instead of 0.002, mode zero instead of prune</dd>" in page


def test_a_preset_that_the_request_left_alone_has_no_line_of_changes(
    model_dir: Path, tmp_path: Path
) -> None:
    job = run(model_dir, tmp_path, preset="optipfair", fraction=0.1)

    assert "<dd>optipfair, the defaults of the library optiPfair</dd>" in page_of(job)
    assert "Set otherwise by the request" not in page_of(job)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"fraction": 0.1}, "3 random removals and removal by importance"),
        ({"fraction": 0.0}, "none was run: there was nothing to compare"),
        ({"fraction": 0.1, "controls": {"enabled": False}}, "none: switched off in the request"),
    ],
    ids=["run", "nothing removed", "switched off"],
)
def test_only_controls_that_ran_are_listed(
    model_dir: Path, tmp_path: Path, config: dict[str, Any], told: str
) -> None:
    job = run(model_dir, tmp_path, **{"controls": {"random_seeds": 3}, **config})

    assert f"<dt>Controls</dt><dd>{told}</dd>" in page_of(job)


def test_one_category_has_no_row_on_groups(model_dir: Path, tmp_path: Path) -> None:
    job = run(model_dir, tmp_path, pairs=[{**p, "category": "gender"} for p in PAIRS])

    assert "<dt>Groups</dt>" not in page_of(job)
