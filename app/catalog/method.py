"""What the service must know of a method to offer it: the descriptor and its parts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict

from app.domain.errors import Finding
from app.domain.models import ModelFacts


class MethodConfig(BaseModel):
    """Base of every method's config: closed, frozen, and free of NaN and infinities."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @property
    def writes_model(self) -> bool:
        """Whether a job with this config makes a model; some only look at one."""
        return True


@dataclass(frozen=True, slots=True)
class Reference:
    """A publication or public implementation that the method follows."""

    title: str
    url: str


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """One metric a method reports: where its ideal lies and over what it is resampled."""

    name: str
    title: str
    unit: str
    ideal: float | None
    lower_is_better: bool | None
    resampling_unit: str


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Outcome of a method's check of a config against a model, before any weight is read.

    `incompatible` findings are about the model (422 `method_model_incompatible`), `invalid`
    ones about the config (422 `config_invalid`); `warnings` do not stop the job.
    """

    incompatible: tuple[Finding, ...] = ()
    invalid: tuple[Finding, ...] = ()
    warnings: tuple[str, ...] = ()


def accept_everything(config: Any, facts: ModelFacts) -> CheckResult:  # noqa: ARG001
    """Find nothing wrong: the check of a method that has no demands on the model."""
    return CheckResult()


@dataclass(frozen=True, slots=True)
class MethodDescriptor:
    """One debiasing method, as `GET /v1/methods/{name}` shows it.

    `engine` names the class that does the work as `module:attribute`; the service never imports
    it. `resolve` returns the config with its preset expanded and every default written out, and
    is the identity for an already resolved one. `check` sees config and model facts only.
    """

    name: str
    version: str
    title: str
    summary: str
    family: Literal["projection", "pruning", "training", "decoding", "sae", "visual"]
    modality: tuple[Literal["text", "vision", "vision-language"], ...]
    model_types: tuple[str, ...]
    config: type[MethodConfig]
    engine: str
    example_config: Mapping[str, Any]
    metrics: tuple[MetricInfo, ...]
    produces: Literal["checkpoint", "adapter", "inference_hook"] = "checkpoint"
    requires_training: bool = False
    supports_checkpoint: bool = False
    deterministic: bool = True
    default_device_class: str = "cpu"
    references: tuple[Reference, ...] = ()
    datasets: tuple[str, ...] = ()
    deprecated: bool = False
    resolve: Callable[[Any], Any] = field(default=lambda config: config)
    check: Callable[[Any, ModelFacts], CheckResult] = accept_everything


class Configured(Protocol):
    """What has a config: a method or a benchmark."""

    @property
    def config(self) -> type[MethodConfig]:
        """Model of the config."""


def schema_of(entry: Configured) -> dict[str, Any]:
    """JSON Schema 2020-12 of the config of a method or benchmark."""
    schema = entry.config.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
