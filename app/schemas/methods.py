"""Bodies of the catalogue of methods and benchmarks."""

from typing import Any

from pydantic import Field

from app.schemas.base import JsonObject, ResponseBody


class ReferenceBody(ResponseBody):
    """A publication or implementation that a method follows."""

    title: str
    url: str


class MetricBody(ResponseBody):
    """One metric that a method reports."""

    name: str
    title: str
    unit: str
    ideal: float | None
    lower_is_better: bool | None
    resampling_unit: str = Field(description="Over what confidence intervals are taken.")


class MethodSummary(ResponseBody):
    """A method on offer."""

    name: str
    version: str
    title: str
    summary: str
    family: str
    modality: list[str]
    model_types: list[str] = Field(description="`model_type` of config.json; `*` for any.")
    produces: str
    requires_training: bool
    supports_checkpoint: bool
    deterministic: bool
    default_device_class: str
    references: list[ReferenceBody]
    deprecated: bool


class MethodBody(MethodSummary):
    """A method with all that is needed to use it."""

    config_schema: JsonObject
    example_config: JsonObject
    datasets: list[str]
    metrics: list[MetricBody]


class BenchmarkBody(ResponseBody):
    """A benchmark on offer."""

    name: str
    version: str
    title: str
    details: dict[str, Any]
