"""Descriptors of methods and benchmarks as response bodies."""

from dataclasses import asdict

from app.catalog.benchmark import BenchmarkDescriptor
from app.catalog.method import MethodDescriptor, schema_of
from app.schemas.methods import (
    BenchmarkBody,
    BenchmarkMetricBody,
    BenchmarkSummary,
    MethodBody,
    MethodSummary,
    MetricBody,
    ReferenceBody,
)


def method_summary(method: MethodDescriptor) -> MethodSummary:
    """Show a method in a list."""
    return MethodSummary(
        name=method.name,
        version=method.version,
        title=method.title,
        summary=method.summary,
        family=method.family,
        modality=list(method.modality),
        model_types=list(method.model_types),
        produces=method.produces,
        requires_training=method.requires_training,
        supports_checkpoint=method.supports_checkpoint,
        deterministic=method.deterministic,
        default_device_class=method.default_device_class,
        references=[ReferenceBody(**asdict(reference)) for reference in method.references],
        deprecated=method.deprecated,
    )


def method_body(method: MethodDescriptor) -> MethodBody:
    """Show one method."""
    return MethodBody(
        **method_summary(method).model_dump(),
        config_schema=schema_of(method),
        example_config=dict(method.example_config),
        datasets=list(method.datasets),
        metrics=[MetricBody(**asdict(metric)) for metric in method.metrics],
    )


def benchmark_summary(benchmark: BenchmarkDescriptor) -> BenchmarkSummary:
    """Show a benchmark in a list."""
    return BenchmarkSummary(
        name=benchmark.name,
        version=benchmark.version,
        title=benchmark.title,
        summary=benchmark.summary,
        metrics=[BenchmarkMetricBody(**asdict(metric)) for metric in benchmark.metrics],
        dataset_license=benchmark.dataset_license,
        items=benchmark.items,
        items_per_s=benchmark.items_per_s,
        references=[ReferenceBody(**asdict(reference)) for reference in benchmark.references],
        deprecated=benchmark.deprecated,
    )


def benchmark_body(benchmark: BenchmarkDescriptor) -> BenchmarkBody:
    """Show one benchmark."""
    return BenchmarkBody(
        **benchmark_summary(benchmark).model_dump(),
        config_schema=schema_of(benchmark),
        example_config=dict(benchmark.example_config),
    )
