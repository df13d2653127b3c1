"""A job that asks for GGUF beside safetensors, through HTTP."""

from pathlib import Path
from typing import Any

import gguf
import httpx
import pytest
import torch
from transformers import AutoModelForCausalLM

from debias_client import ApiError
from tests.service import Service, run_job

PAIR = {
    "prompt_1": "Once upon a time there was a boy named Tim",
    "prompt_2": "Once upon a time there was a girl named Tim",
}
SPEC: dict[str, Any] = {
    "model": {"path": "stories260k-llama"},
    "method": "fairness_pruning",
    "config": {
        "pairs": [PAIR],
        "neurons_per_layer": 3,
        "controls": {"enabled": False},
        "generation": {"max_pairs": 0},
        "plots": [],
    },
    "outputs": {"formats": ["safetensors", "gguf"]},
}
FILE = "gguf/model.gguf"
# As in tests/integration/test_gguf_export.py: fp32 sums in another blocking.
TOLERANCE = 1e-5


def files_of_version(service: Service, version_id: str) -> list[dict[str, Any]]:
    """The files that a job on this version would start from."""
    body = {**SPEC, "model": {"version_id": version_id}}
    answer = httpx.post(f"{service.url}/v1/jobs?dry_run=true", json=body, timeout=60).json()
    files: list[dict[str, Any]] = answer["resolved_spec"]["model"]["files"]
    assert "model.safetensors" in [file["path"] for file in files]
    return files


@pytest.mark.parametrize("service", ["embedded"], indirect=True)
def test_a_pruned_model_is_exported_and_computes_the_same(service: Service, tmp_path: Path) -> None:
    job = run_job(service, SPEC)
    assert job["status"] == "succeeded", job["error"]

    with service.client() as client:
        client.download(job["id"], tmp_path)
        listed = {found["name"]: found for found in client.jobs.artifacts(job["id"])}

    assert (listed[FILE]["type"], listed[FILE]["media_type"]) == (
        "model",
        "application/octet-stream",
    )
    fields = gguf.GGUFReader(tmp_path / FILE).fields
    assert fields["llama.feed_forward_length"].contents() == 172 - 3
    assert fields["general.name"].contents() == "stories260k-llama-fairness_pruning"
    # 169 is odd: usable as it is, and the job says what it is not good for.
    warnings = {warning["code"]: warning["message"] for warning in job["result"]["warnings"]}
    assert "169 neurons" in warnings["gguf_not_quantisable"]
    tokens = torch.tensor([[1, 403, 407, 261, 378]])
    assert "gguf" not in str(files_of_version(service, job["result"]["model_version_id"]))
    with torch.no_grad():
        stored = AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoint")(tokens).logits
        exported = AutoModelForCausalLM.from_pretrained(
            tmp_path / "gguf", gguf_file="model.gguf", dtype=torch.float32
        )(tokens).logits
    assert (stored - exported).abs().max() <= TOLERANCE


@pytest.mark.parametrize("service", ["embedded"], indirect=True)
def test_gguf_alone_is_refused(service: Service) -> None:
    with service.client() as client, pytest.raises(ApiError) as caught:
        client.jobs.create({**SPEC, "outputs": {"formats": ["gguf"]}})

    assert caught.value.errors[0].pointer == "/outputs/formats"
