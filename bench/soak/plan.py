"""Which jobs a soak sends: a seeded mix of sizes, ends and projects."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["plain", "recovers", "crashes", "fails", "cancelled"]
MIX: dict[Kind, float] = {
    "plain": 0.72,
    # Goes wrong in one try: by an error that may be repeated, or by the end of its process.
    "recovers": 0.06,
    "crashes": 0.06,
    "fails": 0.06,
    "cancelled": 0.10,
}
# Steps of each of the four phases, and seconds a step waits: 0 to 1.6 s of work a job.
LENGTHS = ((2, 0.0), (3, 0.02), (4, 0.05), (8, 0.05))
OUTPUT_BYTES = (1024, 65_536, 1_048_576)
# Few seeds for many jobs: the same seed and config must give the same bytes, stored once.
SEEDS = 16
REGISTERED_SHARE = 0.1
MAX_ATTEMPTS = 5
CANCEL_WITHIN_S = 4.0
PHASES = ("evaluating_before", "debiasing", "evaluating_after", "packaging")


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """One job to send; `cancel_after_s` counts from its creation."""

    number: int
    tenant: int
    kind: Kind
    body: dict[str, Any]
    cancel_after_s: float | None

    @property
    def name(self) -> str:
        """The name of the job, by which its row is found again."""
        return str(self.body["name"])


def plan_jobs(count: int, *, tenants: int, seed: int) -> list[PlannedJob]:
    """Draw the jobs of a soak; the same arguments give the same jobs."""
    rng = random.Random(seed)
    return [_plan(number, tenants, rng) for number in range(count)]


def _plan(number: int, tenants: int, rng: random.Random) -> PlannedJob:
    kind = rng.choices(list(MIX), weights=list(MIX.values()))[0]
    steps, step_s = rng.choice(LENGTHS)
    config = {
        "steps": steps,
        "step_s": step_s,
        "output_bytes": rng.choice(OUTPUT_BYTES),
        # What counts the tries of a job that goes wrong once is a checkpoint.
        "checkpoint_every": rng.choice((0, 1, 2)) if kind == "plain" else 1,
        "log_lines": rng.choice((0, 5)),
        **dict(_trouble(kind, rng)),
    }
    body = {
        "kind": "debias",
        "name": f"soak-{number:05d}",
        "model": {"path": "tiny"},
        "method": "fake",
        "config": config,
        "seed": rng.randrange(SEEDS),
        "retry": {"max_attempts": MAX_ATTEMPTS},
        "labels": {"kind": kind},
    }
    if rng.random() < REGISTERED_SHARE:
        body["outputs"] = {"register_as": f"soak-{rng.randrange(3)}"}
    cancel_after_s = rng.uniform(0, CANCEL_WITHIN_S) if kind == "cancelled" else None
    return PlannedJob(number, number % tenants, kind, body, cancel_after_s)


def _trouble(kind: Kind, rng: random.Random) -> Iterator[tuple[str, Any]]:
    if kind in ("plain", "cancelled"):
        return
    yield "trouble_phase", rng.choice(PHASES)
    yield "trouble", rng.choice(("segfault", "sigkill", "exit")) if kind == "crashes" else "fail"
    if kind != "fails":
        yield "trouble_times", 1
        yield "fail_retryable", True
