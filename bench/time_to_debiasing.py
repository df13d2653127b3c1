"""How long a job waits for us: from POST to the start of `debiasing`, on an idle warm worker.

Starts the embedded service, sends one job at a time, and compares the time until `debiasing`
begins with the time the phases before it need in a process of their own. The difference is what
the service adds: HTTP, checks, dispatch, claim, hand-over.

    .venv/bin/python bench/time_to_debiasing.py --models DIR --model NAME [--jobs 11]
"""

import argparse
import statistics
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from app.catalog.registry import load_registry
from tests.service import Service, embedded, events_of
from workers.methods.fairness_pruning.engine import Engine
from workers.runtime.local import LocalContext, local_provenance

SETTLE_S = 10.0  # a recycled child has imported torch by then
PAIRS = [{"prompt_1": "The boy was a doctor. He was", "prompt_2": "The girl was a doctor. He was"}]


def main() -> None:
    """Print one line per job and the medians."""
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as folder:
        phases_s = own_time(arguments.models / arguments.model, Path(folder))
        service = embedded(Path(folder) / "home", DEBIAS_MODELS_DIR=str(arguments.models))
        service.start()
        try:
            times = [measure(service, arguments.model) for _ in range(arguments.jobs)]
        finally:
            service.stop()
    report(times, phases_s)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", type=Path, required=True, help="directory of models")
    parser.add_argument("--model", required=True, help="name of a model in it")
    parser.add_argument("--jobs", type=int, default=11)
    return parser.parse_args()


def own_time(model_dir: Path, folder: Path) -> float:
    """Median time of the phase before `debiasing` without any service, warm."""
    method = load_registry().find("fairness_pruning")
    assert method is not None
    config = method.resolve(method.config.model_validate({"pairs": PAIRS, "preset": "article",
                                                          "fraction": 0.02}))  # fmt: skip
    times = []
    for number in range(6):
        root = folder / f"own-{number}"
        root.mkdir()
        context = LocalContext(
            config=config, model_dir=model_dir, out_dir=root / "out", scratch_dir=root / "scratch",
            provenance=local_provenance(model_dir, method=method.name, method_version="1"),
        )  # fmt: skip
        context.out_dir.mkdir()
        context.scratch_dir.mkdir()
        started = time.perf_counter()
        Engine().evaluate_before(context)
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:])


def measure(service: Service, model: str) -> dict[str, float]:
    """Send one job to an idle worker and read the times of its events."""
    time.sleep(SETTLE_S)
    with service.client() as client:
        posted = time.time()
        job = client.jobs.create({
            "kind": "debias", "model": {"path": model}, "method": "fairness_pruning",
            "config": {"pairs": PAIRS, "preset": "article", "fraction": 0.02},
        })  # fmt: skip
        answered = time.time()
        client.jobs.wait(job["id"], timeout_s=120)
    starts = {
        event["data"].get("phase", event["type"]): moment(event)
        for event in events_of(service, job["id"])
        if event["type"] in ("job.phase", "job.claimed")
    }
    return {
        "POST": answered - posted,
        "to claim": starts["job.claimed"] - posted,
        "to debiasing": starts["debiasing"] - posted,
    }


def moment(event: dict[str, Any]) -> float:
    """Unix time of an event."""
    return datetime.fromisoformat(event["at"]).timestamp()


def report(times: list[dict[str, float]], phases_s: float) -> None:
    """Print the table."""
    for name in times[0]:
        values = sorted(row[name] for row in times)
        print(f"{name:<14} p50 {statistics.median(values):6.3f} s   max {values[-1]:6.3f} s")
    added = statistics.median(row["to debiasing"] for row in times) - phases_s
    print(f"phases alone   p50 {phases_s:6.3f} s")
    print(f"added by the service, p50: {added:.3f} s  (goal: under 1 s)")


if __name__ == "__main__":
    main()
