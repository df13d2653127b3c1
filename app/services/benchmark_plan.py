"""Decide at POST which benchmarks a job is to run, and with which config."""

from typing import Any

from pydantic import ValidationError

from app.catalog.registry import BenchmarkRegistry
from app.domain.errors import ConfigInvalid, Finding, ValidationFailed
from app.domain.findings import did_you_mean, findings_of
from app.domain.specs import ResolvedBenchmark
from app.schemas.jobs import BenchmarkRequest


def plan_benchmarks(
    registry: BenchmarkRegistry, asked: list[BenchmarkRequest]
) -> tuple[ResolvedBenchmark, ...]:
    """Pin the version of each benchmark and write out its config.

    Raises
    ------
    ValidationFailed
        When there is no benchmark of a name, with those that there are.
    ConfigInvalid
        When a config does not fit its benchmark.
    """
    known = [benchmark.name for benchmark in registry.newest()]
    unknown = [(i, one.name) for i, one in enumerate(asked) if one.name not in known]
    if unknown:
        findings = [_unknown(index, name, known) for index, name in unknown]
        raise ValidationFailed("A benchmark is not known.", findings=findings)
    return tuple(_resolved(registry, index, one) for index, one in enumerate(asked))


def _unknown(index: int, name: str, known: list[str]) -> Finding:
    hint = did_you_mean(name, known) if known else "This service has none: leave the list empty."
    pointer = f"/evaluation/benchmarks/{index}/name"
    return Finding(pointer, "unknown_benchmark", f"There is no benchmark {name!r}. {hint}")


def _resolved(
    registry: BenchmarkRegistry, index: int, asked: BenchmarkRequest
) -> ResolvedBenchmark:
    found = registry.find(asked.name)
    assert found is not None  # noqa: S101 - all names were looked up before
    try:
        config = found.config.model_validate(asked.config)
    except ValidationError as exc:
        errors: list[Any] = list(exc.errors(include_url=False))
        place = ("evaluation", "benchmarks", index, "config")
        findings = findings_of(errors, found.config, prefix=place)
        raise ConfigInvalid(f"The config does not fit {found.name}.", findings=findings) from exc
    return ResolvedBenchmark(
        name=found.name, version=found.version, config=config.model_dump(mode="json")
    )
