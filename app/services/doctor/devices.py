"""torch and the GPUs, looked at in a child process: this one must not load them."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from app.services.doctor.findings import Finding, ok, problem, warning
from app.settings import Settings

_TIMEOUT_S = 120
_DRIVER = Path("/proc/driver/nvidia/version")
# One small product on each device: a driver that does not fit fails there, not at the import.
_SCRIPT = """
import json, torch, transformers
cuda = torch.cuda.is_available()
names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if cuda else []
for device in ["cpu", *(f"cuda:{i}" for i in range(len(names)))]:
    a = torch.ones(8, 8, device=device)
    assert float((a @ a).sum()) == 512.0, device
print(json.dumps({
    "torch": torch.__version__, "transformers": transformers.__version__,
    "cuda": torch.version.cuda, "gpus": names, "threads": torch.get_num_threads(),
}))
"""


def check_devices(settings: Settings) -> Iterator[Finding]:
    """Multiply two small matrices on each device that torch finds."""
    if importlib.util.find_spec("torch") is None:
        yield ok("Not installed: fine for the API. Workers need `evenhand[worker]`.")
        return
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter and script
            [sys.executable, "-c", _SCRIPT],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        yield problem("torch did not start in time.", "Look for a hung driver with nvidia-smi.")
        return
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        yield problem(
            f"torch does not work: {last}",
            "Install the versions of constraints.txt: pip install 'evenhand[worker]' -c "
            "constraints.txt; for a GPU, a driver that fits torch's CUDA.",
        )
        return
    yield from judge_devices(json.loads(done.stdout.splitlines()[-1]), settings.device_classes)


def judge_devices(facts: dict[str, Any], classes: tuple[str, ...]) -> Iterator[Finding]:
    """Compare what torch found with the classes that are offered and the driver that is there."""
    wants_gpu = any(name.startswith("gpu") for name in classes)
    versions = f"torch {facts['torch']}, transformers {facts['transformers']}"
    if facts["gpus"]:
        yield ok(f"{versions}, CUDA {facts['cuda']}: {', '.join(facts['gpus'])}")
        if not wants_gpu:
            yield warning(
                "This machine has a GPU, but no class of DEBIAS_DEVICE_CLASSES is for it.",
                "Set DEBIAS_DEVICE_CLASSES=gpu,cpu and start `debias worker --classes gpu`.",
            )
        return
    yield ok(f"{versions}, CPU with {facts['threads']} threads")
    if _DRIVER.exists():
        yield warning(
            "There is an NVIDIA driver, but torch finds no GPU.",
            "Install a build of torch with CUDA, and see that the GPU is passed to the container.",
        )
    elif wants_gpu:
        yield warning(
            "A class for GPUs is offered; this machine has none.",
            "Fine where the workers with GPUs run elsewhere.",
        )
