"""What the service must know of a benchmark to offer it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.catalog.method import MethodConfig, Reference


class BenchmarkConfig(MethodConfig):
    """Base of every benchmark's config."""


@dataclass(frozen=True, slots=True)
class BenchmarkMetric:
    """One metric of a benchmark.

    Its best value is `ideal`; `higher_is_better` is None where a value in between is best.
    """

    name: str
    title: str
    unit: str
    range: tuple[float | None, float | None]
    ideal: float | None
    higher_is_better: bool | None


@dataclass(frozen=True, slots=True)
class BenchmarkDescriptor:
    """One benchmark, as `GET /v1/benchmarks/{name}` shows it.

    `engine` names the class that does the work as `module:attribute`; the service never imports
    it. `items` counts the full set, and `items_per_s` is measured on the default device class.
    """

    name: str
    version: str
    title: str
    summary: str
    config: type[BenchmarkConfig]
    engine: str
    example_config: Mapping[str, Any]
    metrics: tuple[BenchmarkMetric, ...]
    dataset_license: str
    items: int
    items_per_s: float | None = None
    references: tuple[Reference, ...] = ()
    deprecated: bool = False
