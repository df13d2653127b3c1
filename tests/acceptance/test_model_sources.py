"""Where a model may come from, through HTTP, on both deployments."""

import hashlib
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.service import HUB_MODEL
from tests.hub_stand_in import HubStandIn
from tests.service import Service, run_job

PAIRS = [{"prompt_1": "The boy was a doctor. He was", "prompt_2": "The girl was a doctor. He was"}]


def spec(model: dict[str, str]) -> dict[str, Any]:
    return {
        "kind": "debias",
        "model": model,
        "method": "fairness_pruning",
        "config": {
            "preset": "article",
            "fraction": 0.02,
            "pairs": PAIRS,
            "controls": {"enabled": False},
            "generation": {"max_pairs": 0},
            "plots": [],
        },
    }


def weights_sha256(service: Service, job: dict[str, Any], folder: Path) -> str:
    with service.client() as client:
        client.download(job["id"], folder)
    return hashlib.sha256((folder / "checkpoint" / "model.safetensors").read_bytes()).hexdigest()


def test_hub_and_folder_give_the_same_checkpoint_and_the_hub_model_is_pinned(
    service: Service, hub: HubStandIn, tmp_path: Path
) -> None:
    from_hub = run_job(service, spec({"hub": HUB_MODEL, "revision": "main"}))
    from_folder = run_job(service, spec({"path": "stories260k-llama"}))
    assert from_hub["status"] == "succeeded", from_hub["error"]
    assert from_folder["status"] == "succeeded", from_folder["error"]

    assert len(str(from_hub["model"]["commit"])) == 40
    digests = {
        weights_sha256(service, job, tmp_path / job["id"]) for job in (from_hub, from_folder)
    }
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("model", "code"),
    [
        ({"hub": "tinyllamas/no-such-model"}, "model_not_found"),
        ({"hub": HUB_MODEL, "revision": "no-such-branch"}, "model_not_found"),
        ({"path": "no-such-model"}, "model_not_found"),
        ({"version_id": "mv_" + "0" * 26}, "model_not_found"),
        ({"path": "../stories260k-llama"}, "uri_not_allowed"),
        ({"path": "minilm-mlm"}, "method_model_incompatible"),
    ],
)
def test_a_model_that_cannot_be_had_is_refused_at_once(
    service: Service, model: dict[str, str], code: str
) -> None:
    answer = httpx.post(f"{service.url}/v1/jobs", json=spec(model))

    assert answer.status_code == 422
    assert answer.json()["code"] == code
