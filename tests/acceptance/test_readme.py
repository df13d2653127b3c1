"""What the README tells a newcomer to type does what it says, against a running service."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import Excerpt, blocks
from tests.fixtures.service import HUB_MODEL
from tests.service import JOB_TIMEOUT_S, Service

# Addresses and names that differ between the README's machine and this one.
URL = "http://127.0.0.1:8000"
MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
SMALL_JOB = {
    "model": {"demo": "tiny-llama"},
    "method": "fairness_pruning",
    "config": {
        "pairs": [{"prompt_1": "The boy was late", "prompt_2": "The girl was late"}],
        "neurons_per_layer": 1,
        "controls": {"enabled": False},
    },
}


pytestmark = [
    pytest.mark.parametrize("service", ["embedded"], indirect=True),  # as the README starts it
    pytest.mark.timeout(2 * JOB_TIMEOUT_S),
]


def of_readme(language: str, word: str) -> list[Excerpt]:
    return [
        block for block in blocks(language) if block.document == "README.md" and word in block.text
    ]


def adapted(block: Excerpt, service: Service) -> str:
    assert URL in block.text
    assert MODEL in block.text
    return block.text.replace(URL, service.url).replace(MODEL, HUB_MODEL)


@pytest.mark.parametrize("block", of_readme("sh", '"method"'), ids=lambda block: block.place)
def test_the_shell_command_creates_a_job(block: Excerpt, service: Service, tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", "-ec", adapted(block, service)], cwd=tmp_path, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    job = json.loads(done.stdout)
    assert job["status"] == "queued", job
    with service.client() as client:
        client.jobs.cancel(job["id"])  # the next test runs the same job to its end


@pytest.mark.parametrize("block", of_readme("sh", "$JOB"), ids=lambda block: block.place)
def test_the_shell_commands_fetch_what_a_job_left(
    block: Excerpt, service: Service, tmp_path: Path
) -> None:
    with service.client() as client:
        job = client.jobs.wait(client.jobs.create(SMALL_JOB)["id"])
        files = {file["name"]: file for file in client.jobs.artifacts(job["id"])}
    model = files["checkpoint/model.safetensors"]
    environment = {**os.environ, "KEY": "none", "JOB": job["id"], "ARTIFACT": model["id"]}

    done = subprocess.run(
        ["sh", "-ec", block.text.replace(URL, service.url)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    assert '"status":"succeeded"' in done.stdout
    assert all(name in done.stdout for name in files)
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    fetched = hashlib.sha256((tmp_path / "model.safetensors").read_bytes()).hexdigest()
    assert fetched == model["sha256"]


@pytest.mark.parametrize("block", of_readme("python", "Client"), ids=lambda block: block.place)
def test_the_program_leaves_a_checkpoint_that_transformers_loads(
    block: Excerpt, service: Service, tmp_path: Path
) -> None:
    loads = (
        "from transformers import AutoModelForCausalLM\n"
        'AutoModelForCausalLM.from_pretrained("fairer-model/checkpoint")\n'
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}

    done = subprocess.run(
        [sys.executable, "-c", adapted(block, service) + "\n" + loads],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=JOB_TIMEOUT_S,
    )

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "fairer-model" / "report.html").exists()
