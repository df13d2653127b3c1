"""Bodies below the limit of 1 MiB that are wrong in as many places as fit."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.integration.api.callers import JOB

ROOM = 1_000_000
PRUNING = {"model": {"demo": "tiny-llama"}, "method": "fairness_pruning"}
WRONG_ITEMS = 10_000


@dataclass(frozen=True)
class Costly:
    """A request whose answer must stay small; `body` makes it when the test runs."""

    name: str
    body: Any
    path: str = "/v1/jobs"
    method: str = "POST"


def many(name: str, value: Any = 1, *, room: int = ROOM) -> dict[str, Any]:
    """An object of as many fields, called like `name`, as fit."""
    size = len(name) + 10 + len(json.dumps(value))
    return {f"{name}{n}": value for n in range(room // size)}


def config(**fields: Any) -> dict[str, Any]:
    return {**PRUNING, "config": fields}


def _pairs(fields: int) -> list[dict[str, Any]]:
    pair = {f"prompt_{n}": 1 for n in range(fields)}
    return [pair] * min(WRONG_ITEMS, ROOM // len(json.dumps(pair)))


def _benchmarks() -> Iterator[dict[str, Any]]:
    return itertools.repeat({"name": "none", "confi": 1}, WRONG_ITEMS)


def _below(depth: int, inner: dict[str, Any]) -> dict[str, Any]:
    for _ in range(depth):
        inner = {"\U000e0001" * 250: inner}
    return inner


BODIES = (
    Costly("unknown config fields", config(**many("fractionbias_weigh"))),
    Costly("unknown config fields, dry run", config(**many("layer")), "/v1/jobs?dry_run=true"),
    Costly("unknown config fields, estimate", config(**many("layer")), "/v1/jobs/estimate"),
    Costly("unknown fields", {**JOB, **many("metho")}),
    Costly("a thousand unknown fields", {**JOB, **many("metho", room=16_000)}),
    Costly("a thousand config fields", config(**many("fractio", room=18_000))),
    Costly("unknown fields of a pair", config(pairs=[many("prompt_")])),
    Costly("unknown fields of pairs", config(pairs=_pairs(10))),
    Costly("unknown fields of few pairs", config(pairs=_pairs(500))),
    Costly("wrong pairs", config(pairs=[1] * WRONG_ITEMS)),
    Costly("wrong pairs in three lists", config(
        pairs=[1] * 2000, holdout_pairs=[1] * 2000, control_pairs=[1] * 2000)),
    Costly("unknown sets of pairs", config(pairs=["x" * 90] * WRONG_ITEMS)),
    Costly("distinct unknown sets of pairs", config(pairs=[f"{n:060}" for n in range(2000)])),
    Costly("wrong layers", config(layers=["a"] * WRONG_ITEMS, plot_layers=["a"] * WRONG_ITEMS)),
    Costly("wrong plots", config(plots=["a"] * WRONG_ITEMS)),
    Costly("blank texts", config(calibration_texts=[""] * WRONG_ITEMS)),
    Costly("wrong neurons", config(
        neuron_indices={str(n): [-1] * 280 for n in range(900)})),
    Costly("wrong heads", config(
        attention_heads={"head_indices": {str(n): [-1] * 280 for n in range(900)}})),
    Costly("wrong layer names", config(neuron_indices={f"x{n}": [-1] for n in range(70_000)})),
    Costly("unknown benchmarks", {**JOB, "evaluation": {"benchmarks": list(_benchmarks())}}),
    Costly("wrong formats", {**JOB, "outputs": {"formats": ["a"] * WRONG_ITEMS}}),
    Costly("wrong labels", {**JOB, "labels": many("?", room=500_000)}),
    Costly("labels that do not fit a line", {**JOB, "labels": {
        f"{n:04}" + "\U000e0001" * 250: 1 for n in range(900)}}),
    Costly("below a long name", {"config": {"k" * 400_000: {str(n): "\0" for n in range(900)}}}),
    Costly("below long names", {"config": _below(28, {str(n): "\0" for n in range(900)})}),
    Costly("long unknown name", {**JOB, "m" * 900_000: 1}),
    Costly("many objects", {"config": {"a": [many("b", room=90)] * 9_000}}),
    Costly("changes of a job", many("nam"), "/v1/jobs/job_01m2a5mqf0e0xbzqz2r9m8j4nd", "PATCH"),
    Costly("value of a secret", many("valu"), "/v1/secrets/hf_token", "PUT"),
    Costly("wrong scopes", {"name": "a", "scopes": ["a"] * WRONG_ITEMS}, "/v1/api-keys"),
)  # fmt: skip
