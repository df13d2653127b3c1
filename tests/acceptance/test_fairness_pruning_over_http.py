"""The golden values of stories260K, through HTTP, on both deployments."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.service import Service, run_job

MODEL = "stories260k-llama"
# The values were written by another implementation in fp32; sums in another order move the
# seventh digit of numbers around 0.1.
ABSOLUTE = 1e-5
# What a test of numbers does not look at.
QUIET: dict[str, Any] = {
    "plots": [],
    "generation": {"max_pairs": 0},
    "controls": {"enabled": False},
}


@pytest.fixture(scope="session")
def golden(shared_data: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (shared_data / "golden" / "optipfair_stories260k.json").read_text()
    )
    return found


def pruning_spec(pairs: list[dict[str, str]], **config: Any) -> dict[str, Any]:
    return {
        "kind": "debias",
        "model": {"path": MODEL},
        "method": "fairness_pruning",
        "config": {"pairs": pairs, **config},
        "seed": 0,
    }


def golden_pairs(golden: dict[str, Any], names: str = "all_equal_length") -> list[dict[str, str]]:
    """The pairs of equal token count, or the first of them."""
    pairs = [{"prompt_1": one, "prompt_2": two} for one, two in golden["equal_length_pairs"]]
    return pairs[:1] if names == "pair0" else pairs


def read_report(service: Service, job: dict[str, Any], folder: Path) -> dict[str, Any]:
    with service.client() as client:
        client.download(job["id"], folder)
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return report


def test_parity_metric_of_every_pair(
    service: Service, golden: dict[str, Any], tmp_path: Path
) -> None:
    spec = pruning_spec(golden_pairs(golden), preset="article", fraction=0.02, **QUIET)
    job = run_job(service, spec)
    assert job["status"] == "succeeded", job["error"]

    found = read_report(service, job, tmp_path)["pairs"]

    wanted = [pair["overall_mean_difference"] for pair in golden["pairs"]][: len(found)]
    assert [pair["bias_metric_parity"]["before"] for pair in found] == pytest.approx(
        wanted, abs=ABSOLUTE
    )


CASES = [("article", "article_hybrid", index) for index in range(6)]
CASES += [("optipfair", "prune", index) for index in range(8)]


@pytest.mark.parametrize(("preset", "table", "index"), CASES)
def test_removed_neurons_and_metric_before_and_after(
    service: Service, golden: dict[str, Any], tmp_path: Path, preset: str, table: str, index: int
) -> None:
    case = golden[table][index]
    fraction = case.get("fraction") or case["pruning_percentage"] / 100
    spec = pruning_spec(
        golden_pairs(golden, case["pairs"]),
        preset=preset,
        fraction=fraction,
        bias_weight=case["bias_weight"],
        **QUIET,
    )
    job = run_job(service, spec)
    assert job["status"] == "succeeded", job["error"]

    report = read_report(service, job, tmp_path)

    assert report["removed"] == case["removed"]
    metrics = [pair["bias_metric_parity"] for pair in report["pairs"]]
    for stage in ("before", "after"):
        found = [metric[stage] for metric in metrics][: len(case[f"overall_{stage}"])]
        assert found == pytest.approx(case[f"overall_{stage}"], abs=ABSOLUTE), stage


LOAD_PLAINLY = """
import json, sys
import numpy as np, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
checkpoint, base, removed, output = sys.argv[1:]
assert not any(name.split(".")[0] in ("app", "workers", "debias_client") for name in sys.modules)
removed = json.loads(removed)
tokenizer = AutoTokenizer.from_pretrained(checkpoint)
tokens = tokenizer("Once upon a time there was a doctor", return_tensors="pt")
pruned = AutoModelForCausalLM.from_pretrained(checkpoint).eval()
zeroed = AutoModelForCausalLM.from_pretrained(base).eval()
with torch.no_grad():
    for layer, indices in removed.items():
        zeroed.model.layers[int(layer)].mlp.down_proj.weight[:, indices] = 0
    np.savez(output, pruned=pruned(**tokens).logits, zeroed=zeroed(**tokens).logits)
"""


def test_the_checkpoint_loads_plainly_and_equals_the_zero_masked_original(
    service: Service, golden: dict[str, Any], tmp_path: Path, shared_data: Path
) -> None:
    pairs = golden_pairs(golden, "pair0")
    job = run_job(service, pruning_spec(pairs, preset="article", fraction=0.02, **QUIET))
    assert job["status"] == "succeeded", job["error"]
    report = read_report(service, job, tmp_path)

    # -I: isolated from this repository, so that nothing of ours can be imported.
    arguments: list[Path | str] = [tmp_path / "checkpoint", shared_data / "models" / MODEL]
    arguments += [json.dumps(report["removed"]), tmp_path / "l.npz"]
    subprocess.run([sys.executable, "-I", "-c", LOAD_PLAINLY, *map(str, arguments)], check=True)

    logits = np.load(tmp_path / "l.npz")
    assert np.abs(logits["pruned"] - logits["zeroed"]).max() <= ABSOLUTE


def test_the_output_of_one_job_is_the_input_of_the_next(
    service: Service, golden: dict[str, Any], tmp_path: Path
) -> None:
    pairs = golden_pairs(golden, "pair0")
    first = run_job(service, pruning_spec(pairs, preset="article", fraction=0.02, **QUIET))
    assert first["status"] == "succeeded", first["error"]
    version = first["result"]["model_version_id"]
    assert version.startswith("mv_")

    spec = pruning_spec(pairs, preset="article", fraction=0.02, **QUIET)
    second = run_job(service, {**spec, "model": {"version_id": version}})
    assert second["status"] == "succeeded", second["error"]

    config = json.loads(read_report_file(service, second, tmp_path, "checkpoint/config.json"))
    assert config["intermediate_size"] == 172 - 3 - 3  # floor(0.02 * 169) = 3


def read_report_file(service: Service, job: dict[str, Any], folder: Path, name: str) -> str:
    with service.client() as client:
        client.download(job["id"], folder)
    return (folder / name).read_text()


def test_a_job_leaves_the_promised_artifacts(
    service: Service, golden: dict[str, Any], tmp_path: Path
) -> None:
    job = run_job(service, pruning_spec(golden_pairs(golden), preset="article", fraction=0.02))
    assert job["status"] == "succeeded", job["error"]
    read_report(service, job, tmp_path)

    for name in (
        "checkpoint/model.safetensors", "checkpoint/config.json", "checkpoint/tokenizer.json",
        "report.json", "report.html", "request.json", "resolved_spec.json",
        "plots/mean_diff_mlp_output.png", "plots/mean_diff_mlp_output.json",
        "plots/mean_diff_attention_output.png", "plots/pca_mlp_output_layer_0.png",
    ):  # fmt: skip
        assert (tmp_path / name).stat().st_size > 0, name
