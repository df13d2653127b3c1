"""The catalogue of methods and benchmarks."""

from collections.abc import Sequence

from app.catalog.benchmark import BenchmarkDescriptor
from app.catalog.method import MethodDescriptor
from app.catalog.registry import BenchmarkRegistry, MethodRegistry
from app.domain.errors import NotFound
from app.domain.findings import did_you_mean


def list_methods(registry: MethodRegistry) -> Sequence[MethodDescriptor]:
    """List the newest version of each method, by name."""
    return registry.newest()


def get_method(registry: MethodRegistry, name: str) -> MethodDescriptor:
    """Return the newest version of a method."""
    found = registry.find(name)
    if found is None:
        known = [method.name for method in registry.newest()]
        raise NotFound(f"There is no such method. {did_you_mean(name, known)}")
    return found


def get_benchmark(registry: BenchmarkRegistry, name: str) -> BenchmarkDescriptor:
    """Return the newest version of a benchmark."""
    found = registry.find(name)
    if found is None:
        known = [benchmark.name for benchmark in registry.newest()]
        hint = did_you_mean(name, known) if known else "This service has none."
        raise NotFound(f"There is no such benchmark. {hint}")
    return found
