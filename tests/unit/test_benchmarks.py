"""Benchmarks: found by scanning their package, pinned and checked when a job asks for them."""

import importlib
import sys
from pathlib import Path

import pytest
from pydantic import Field

from app.api.method_views import benchmark_body
from app.catalog.benchmark import BenchmarkConfig, BenchmarkDescriptor, BenchmarkMetric
from app.catalog.registry import BenchmarkRegistry, load_benchmarks
from app.domain.errors import ConfigInvalid, NotFound, ValidationFailed
from app.schemas.jobs import BenchmarkRequest
from app.services.benchmark_plan import plan_benchmarks
from app.services.methods import get_benchmark

MODULE = """
from tests.unit.test_benchmarks import descriptor
BENCHMARK = descriptor("scanned")
"""


class PairConfig(BenchmarkConfig):
    max_items: int = Field(default=500, ge=1)


def descriptor(name: str, version: str = "1.0.0") -> BenchmarkDescriptor:
    return BenchmarkDescriptor(
        name=name,
        version=version,
        title="Pairs",
        summary="Pairs of sentences.",
        config=PairConfig,
        engine="workers.evaluation.pairs:Engine",
        example_config={"max_items": 10},
        metrics=(BenchmarkMetric("preference", "Preference", "percent", (0, 100), 50, None),),
        dataset_license="CC-BY-SA-4.0",
        items=1508,
    )


@pytest.fixture
def registry() -> BenchmarkRegistry:
    return BenchmarkRegistry([descriptor("pairs", "1.9.0"), descriptor("pairs", "1.10.0")])


def test_every_module_of_the_package_is_a_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "scanned_benchmarks"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "scanned.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)

    found = load_benchmarks(importlib.import_module("scanned_benchmarks")).newest()

    assert [benchmark.name for benchmark in found] == ["scanned"]
    del sys.modules["scanned_benchmarks"], sys.modules["scanned_benchmarks.scanned"]


def test_newest_version_is_shown_with_schema_and_licence(registry: BenchmarkRegistry) -> None:
    shown = benchmark_body(get_benchmark(registry, "pairs"))

    assert (shown.version, shown.dataset_license, shown.items) == ("1.10.0", "CC-BY-SA-4.0", 1508)
    assert shown.config_schema["properties"]["max_items"]["default"] == 500
    assert shown.metrics[0].range == (0, 100)


def test_unknown_benchmark_is_not_found(registry: BenchmarkRegistry) -> None:
    with pytest.raises(NotFound, match="Did you mean 'pairs'"):
        get_benchmark(registry, "pair")


def test_plan_pins_version_and_writes_defaults(registry: BenchmarkRegistry) -> None:
    planned = plan_benchmarks(registry, [BenchmarkRequest(name="pairs")])

    assert [one.model_dump() for one in planned] == [
        {"name": "pairs", "version": "1.10.0", "config": {"max_items": 500}}
    ]


def test_plan_names_every_unknown_benchmark(registry: BenchmarkRegistry) -> None:
    asked = [BenchmarkRequest(name=name) for name in ("nothing", "pairs", "pair")]

    with pytest.raises(ValidationFailed) as caught:
        plan_benchmarks(registry, asked)

    pointers = [finding.pointer for finding in caught.value.findings]
    assert pointers == ["/evaluation/benchmarks/0/name", "/evaluation/benchmarks/2/name"]
    assert all("pairs" in finding.message for finding in caught.value.findings)


def test_plan_points_into_a_wrong_config(registry: BenchmarkRegistry) -> None:
    asked = [BenchmarkRequest(name="pairs", config={"max_items": 0})]

    with pytest.raises(ConfigInvalid) as caught:
        plan_benchmarks(registry, asked)

    assert caught.value.findings[0].pointer == "/evaluation/benchmarks/0/config/max_items"
