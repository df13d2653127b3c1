"""Bodies of the catalogue of methods and benchmarks."""

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


class BenchmarkMetricBody(ResponseBody):
    """One metric of a benchmark; `higher_is_better` is null where a value in between is best."""

    name: str
    title: str
    unit: str
    range: tuple[float | None, float | None]
    ideal: float | None
    higher_is_better: bool | None


class BenchmarkSummary(ResponseBody):
    """A benchmark on offer."""

    name: str
    version: str
    title: str
    summary: str
    metrics: list[BenchmarkMetricBody]
    dataset_license: str
    items: int
    items_per_s: float | None
    references: list[ReferenceBody]
    deprecated: bool


class BenchmarkBody(BenchmarkSummary):
    """A benchmark with all that is needed to use it."""

    config_schema: JsonObject
    example_config: JsonObject
