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


def golden_pairs(golden: dict[str, Any]) -> list[dict[str, str]]:
    return [{"prompt_1": pair["prompt1"], "prompt_2": pair["prompt2"]} for pair in golden["pairs"]]


def read_report(service: Service, job: dict[str, Any], folder: Path) -> dict[str, Any]:
    with service.client() as client:
        client.download(job["id"], folder)
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return report


ARTICLE_2_PERCENT = {
    "0": [20, 103, 105], "1": [103, 160, 161], "2": [12, 137, 155],
    "3": [108, 122, 135], "4": [96, 97, 123],
}  # fmt: skip
ALL_PAIRS_2_PERCENT = {
    "article": {
        "0": [12, 20, 105], "1": [98, 116, 122], "2": [12, 26, 120],
        "3": [128, 135, 136], "4": [80, 96, 123],
    },
    "optipfair": {
        "0": [20, 64, 105], "1": [102, 135, 161], "2": [12, 137, 166],
        "3": [8, 45, 135], "4": [96, 97, 155],
    },
}  # fmt: skip


def test_parity_metrics_of_all_pairs_and_removed_indices_of_preset_article(
    service: Service, golden: dict[str, Any], tmp_path: Path
) -> None:
    job = run_job(service, pruning_spec(golden_pairs(golden), preset="article", fraction=0.02))
    assert job["status"] == "succeeded", job["error"]

    report = read_report(service, job, tmp_path)

    found = [pair["bias_metric_parity"]["before"] for pair in report["pairs"]]
    wanted = [pair["overall_mean_difference"] for pair in golden["pairs"]]
    assert found == pytest.approx(wanted, abs=ABSOLUTE)
    assert report["removed"] == ALL_PAIRS_2_PERCENT["article"]


def test_removed_indices_of_preset_optipfair(
    service: Service, golden: dict[str, Any], tmp_path: Path
) -> None:
    pairs = golden_pairs(golden)[:1]
    job = run_job(service, pruning_spec(pairs, preset="optipfair", fraction=0.02))
    assert job["status"] == "succeeded", job["error"]

    assert read_report(service, job, tmp_path)["removed"] == ALL_PAIRS_2_PERCENT["optipfair"]


@pytest.mark.parametrize(("fraction", "after"), [(0.02, 0.1214613), (0.05, 0.1177099)])
def test_before_and_after_of_one_pair(
    service: Service, golden: dict[str, Any], tmp_path: Path, fraction: float, after: float
) -> None:
    pairs = golden_pairs(golden)[:1]
    job = run_job(service, pruning_spec(pairs, preset="article", fraction=fraction))
    assert job["status"] == "succeeded", job["error"]

    metric = read_report(service, job, tmp_path)["pairs"][0]["bias_metric_parity"]

    assert metric["before"] == pytest.approx(0.1248543, abs=ABSOLUTE)
    assert metric["after"] == pytest.approx(after, abs=ABSOLUTE)


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
    pairs = golden_pairs(golden)[:1]
    job = run_job(service, pruning_spec(pairs, preset="article", fraction=0.02))
    assert job["status"] == "succeeded", job["error"]
    report = read_report(service, job, tmp_path)
    assert report["removed"] == ARTICLE_2_PERCENT

    # -I: isolated from this repository, so that nothing of ours can be imported.
    arguments: list[Path | str] = [tmp_path / "checkpoint", shared_data / "models" / MODEL]
    arguments += [json.dumps(report["removed"]), tmp_path / "l.npz"]
    subprocess.run([sys.executable, "-I", "-c", LOAD_PLAINLY, *map(str, arguments)], check=True)

    logits = np.load(tmp_path / "l.npz")
    assert np.abs(logits["pruned"] - logits["zeroed"]).max() <= ABSOLUTE


def test_the_output_of_one_job_is_the_input_of_the_next(
    service: Service, golden: dict[str, Any], tmp_path: Path
) -> None:
    pairs = golden_pairs(golden)[:1]
    first = run_job(service, pruning_spec(pairs, preset="article", fraction=0.02))
    assert first["status"] == "succeeded", first["error"]
    version = first["result"]["model_version_id"]
    assert version.startswith("mv_")

    spec = pruning_spec(pairs, preset="article", fraction=0.02)
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
        "report.json", "report.html", "resolved_spec.json",
        "plots/mean_diff_mlp_output.png", "plots/mean_diff_mlp_output.json",
        "plots/mean_diff_attention_output.png", "plots/pca_mlp_output_layer_0.png",
    ):  # fmt: skip
        assert (tmp_path / name).stat().st_size > 0, name
