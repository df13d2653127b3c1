"""A job that only diagnoses, through HTTP: a result without a model, and everything beside it."""

import io
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console

from app.cli.watch import show_result
from tests.service import Service, run_job

SPEC: dict[str, Any] = {
    "kind": "debias",
    "model": {"path": "stories260k-llama"},
    "method": "fairness_pruning",
    "config": {
        "diagnose_only": True,
        "pairs": [
            {"prompt_1": "The boy was a doctor", "prompt_2": "The girl was a doctor"},
            {"prompt_1": "Tim wanted to be a leader", "prompt_2": "Lily wanted to be a leader"},
        ],
        "control_pairs": [{"prompt_1": "The dog was big", "prompt_2": "The cat was big"}],
        "plots": ["layer_neuron"],
        "generation": {"max_pairs": 1},
    },
    "outputs": {"register_as": None},
    "seed": 0,
}


@pytest.fixture(scope="module")
def diagnosed(service: Service) -> dict[str, Any]:
    return run_job(service, SPEC)


def test_the_job_succeeds_with_metrics_before_and_no_model(diagnosed: dict[str, Any]) -> None:
    assert diagnosed["status"] == "succeeded", diagnosed["error"]
    result = diagnosed["result"]

    assert result["model_version_id"] is None
    assert result["metrics"]["before"]["bias_metric_parity"] > 0
    assert result["metrics"]["after"] == {}
    assert result["metrics"]["delta"] == {}
    for row in result["summary"]:
        assert row["before"] is not None
        assert (row["after"], row["delta"], row["improved"]) == (None, None, None)


def test_its_files_can_be_fetched_and_none_is_a_model(
    service: Service, diagnosed: dict[str, Any], tmp_path: Path
) -> None:
    with service.client() as client:
        client.download(diagnosed["id"], tmp_path)

    names = {
        path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()
    }
    assert {"report.json", "report.html", "report.md", "plots/amplification.png"} <= names
    assert not any(name.startswith("checkpoint") for name in names)
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["amplification"]["after"] is None


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("application/json", '"format": "evenhand.fairness_pruning.diagnosis/1"'),
        ("text/html", "What was measured"),
        ("text/markdown", "# Diagnosis of "),
    ],
)
def test_its_report_is_served_in_every_form(
    service: Service, diagnosed: dict[str, Any], accept: str, expected: str
) -> None:
    url = f"{service.url}/v1/jobs/{diagnosed['id']}/report"

    answer = httpx.get(url, headers={"Accept": accept}, timeout=10).raise_for_status()

    assert answer.headers["Content-Type"].startswith(accept)
    assert expected in answer.text


def test_watching_it_shows_a_table_of_what_was_measured(
    service: Service, diagnosed: dict[str, Any]
) -> None:
    shown = io.StringIO()

    with service.client() as client:
        show_result(client.jobs.get(diagnosed["id"]), Console(file=shown, width=120))

    assert "measured only" in shown.getvalue()
    assert f"All {len(diagnosed['result']['summary'])} rows of the report" in shown.getvalue()
    assert "no reliable change" not in shown.getvalue()
