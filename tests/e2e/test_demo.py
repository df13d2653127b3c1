"""`debias demo` as a newcomer runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from app.cli.demo import PACKAGED_MODEL
from app.cli.known_bias import known_bias_sentence


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_demo_leaves_a_checkpoint_and_a_report_and_nothing_running(tmp_path: Path) -> None:
    output = tmp_path / "demo"
    command = [sys.executable, "-m", "app.cli.main", "demo", "--output", str(output)]
    environment = {**os.environ, "DEBIAS_HUB_ENDPOINT": "http://127.0.0.1:9"}  # nobody there

    for _ in range(2):  # the second run finds the home of the first
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Against chance" in done.stdout

    jobs = sorted(output.glob("job_*"))
    assert len(jobs) == 2
    reports = [json.loads((job / "report.json").read_text()) for job in jobs]
    assert reports[0]["summary"] == reports[1]["summary"]
    assert {pair["category"] for pair in reports[0]["pairs"]} == {"race", "gender"}
    assert reports[0]["controls"]["enabled"]
    assert len(reports[0]["generations"]) >= 4
    for job in jobs:
        assert (job / "checkpoint" / "model.safetensors").stat().st_size > 200_000_000
        assert (job / "report.html").stat().st_size > 100_000
    assert (output / "models" / PACKAGED_MODEL / "config.json").exists()
    assert processes_of(output) == []


def test_the_tiny_demo_debiases_a_shipped_model_without_any_download(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "app.cli.main", "demo", "--model", "tiny"]
    environment = {**os.environ, "DEBIAS_HUB_ENDPOINT": "http://127.0.0.1:9"}  # nobody there

    done = subprocess.run(
        [*command, "--output", str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Against chance" in done.stdout
    (job,) = tmp_path.glob("job_*")
    report = json.loads((job / "report.json").read_text())
    assert report["verdict"]["wording"] in done.stdout
    assert report["controls"]["enabled"]
    assert "demo model tiny-llama" in (job / "report.html").read_text()
    assert "demo model tiny-llama" in (job / "checkpoint" / "README.md").read_text()
    assert (job / "checkpoint" / "model.safetensors").stat().st_size > 1_000_000
    known = json.loads((job / "known_bias.json").read_text())
    assert known_bias_sentence(known) in done.stdout
    assert known["distance"]["n"] == len(known["jobs"]) == 64
    shares = [share for answers in known["jobs"].values() for share in answers.values()]
    assert all(0 < share < 1 for share in shares)
    assert list((tmp_path / "models").iterdir()) == []
    assert processes_of(tmp_path) == []


def processes_of(folder: Path) -> list[str]:
    """Command lines of processes that work in `folder` or name it."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        named = " ".join(process.info["cmdline"] or [])
        home = (process.info["environ"] or {}).get("DEBIAS_HOME", "")
        if str(folder) in named or home.startswith(str(folder)):
            found.append(named)
    return found
