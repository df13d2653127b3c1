"""Descriptors of methods as response bodies."""

from dataclasses import asdict

from app.catalog.method import MethodDescriptor, schema_of
from app.schemas.methods import MethodBody, MethodSummary, MetricBody, ReferenceBody


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
