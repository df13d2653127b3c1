"""Decide at POST everything that can be decided without weights."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from app.catalog.method import CheckResult, MethodConfig, MethodDescriptor
from app.db.repositories.models import VersionOrigin
from app.db.uow import unit_of_work
from app.domain.errors import (
    ConfigInvalid,
    DebiasError,
    Finding,
    InsufficientScope,
    MethodModelIncompatible,
    ModelNotFound,
    Unavailable,
    ValidationFailed,
)
from app.domain.estimate import Estimate, Workload, estimate
from app.domain.findings import did_you_mean, findings_of, limited
from app.domain.gguf_families import gguf_findings, gguf_warnings
from app.domain.ids import IdPrefix, format_id, parse_id
from app.domain.models import FileFact, ModelFacts
from app.domain.sources import (
    DemoSource,
    HubSource,
    ModelSource,
    PathSource,
    VersionSource,
    shown_name,
)
from app.domain.specs import ResolvedBenchmark, ResolvedOutputs, ResolvedResources, ResolvedSpec
from app.schemas.jobs import JobRequest, ModelReference, OutputsRequest
from app.security.scopes import Principal, Scope
from app.services.benchmark_plan import plan_benchmarks
from app.services.context import ServiceContext
from app.services.model_intake import InspectedModel, inspect_source
from app.services.secrets import hub_of_project
from app.settings import Settings

MAX_KEPT_CONFIG_LENGTH = 10_000


@dataclass(frozen=True, slots=True)
class JobPlan:
    """A request that can be run: what was asked, what it comes to, and what to know of it."""

    request: JobRequest
    spec: ResolvedSpec
    estimate: Estimate
    warnings: tuple[str, ...]
    model_version_id: UUID | None


@dataclass(frozen=True, slots=True)
class PlanOutcome:
    """The answer to a dry run: a plan, or what stands against one."""

    plan: JobPlan | None
    problems: tuple[Finding, ...]


def plan_job(context: ServiceContext, principal: Principal, request: JobRequest) -> JobPlan:
    """Validate `request` and pin all it refers to. Talks to the hub, so open no transaction.

    Raises
    ------
    DebiasError
        One of the 422 errors of the problem registry, with a finding for each thing wrong, or
        `Unavailable` when the hub does not answer.
    """
    check_priority(principal, request.priority)
    method = _find_method(context, request)
    config = _read_config(method, request.config)
    benchmarks = plan_benchmarks(context.benchmarks, request.evaluation.benchmarks)
    device_class = choose_device_class(
        context.settings, request.resources.device_class, method.default_device_class
    )
    version_id = _version_id(request.model)
    inspected = _inspect(context, principal, request.model, version_id)
    resolved, check = context.checks.get(
        _check_key(method, request.config, inspected),
        lambda: _check(method, config, inspected.facts),
    )
    spec = _resolved_spec(
        context.settings,
        request,
        method,
        resolved,
        inspected,
        device_class=device_class,
        benchmarks=benchmarks,
    )
    work = Workload(
        facts=inspected.facts,
        device_class=device_class,
        dtype=request.resources.dtype,
        trains=method.requires_training,
        kept_checkpoints=request.outputs.keep_checkpoints,
        models_written=len(request.outputs.formats) if resolved.writes_model else 0,
    )
    warnings = (
        *inspected.warnings,
        *check.warnings,
        *_check_outputs(request.outputs, resolved, inspected.facts),
    )
    return JobPlan(request, spec, estimate(work), warnings, version_id)


def try_plan(context: ServiceContext, principal: Principal, request: JobRequest) -> PlanOutcome:
    """Do everything `plan_job` does, but give what is wrong as data.

    Raises
    ------
    Unavailable
        When the hub does not answer: then nothing is known of the request.
    """
    try:
        return PlanOutcome(plan_job(context, principal, request), ())
    except Unavailable:
        raise
    except DebiasError as exc:
        findings = exc.findings or (Finding("", exc.code, exc.detail),)
        return PlanOutcome(None, findings)


def choose_device_class(settings: Settings, asked: str, preferred: str) -> str:
    """Return the class asked for; for `auto` the method's own where this service has it."""
    if asked == "auto":
        classes = settings.device_classes
        return preferred if preferred in classes else classes[0]
    if asked not in settings.device_classes:
        known = (*settings.device_classes, "auto")
        message = f"There is no device class {asked!r} here. {did_you_mean(asked, known)}"
        finding = Finding("/resources/device_class", "unknown_device_class", message)
        raise ValidationFailed("The resources cannot be had here.", findings=[finding])
    return asked


def choose_runtime(settings: Settings, asked: int | None) -> int:
    """Return the run time asked for, by default all that the operator allows."""
    if asked is None:
        return settings.max_runtime_s
    if asked > settings.max_runtime_s:
        message = f"Give at most {settings.max_runtime_s}: the operator's limit for one attempt."
        finding = Finding("/resources/max_runtime_s", "above_limit", message)
        raise ValidationFailed("The resources cannot be had here.", findings=[finding])
    return asked


def check_priority(principal: Principal, priority: int) -> None:
    """Let only a key with the scope for it jump the queue."""
    if priority > 0 and not principal.has(Scope.JOBS_PRIORITY):
        raise InsufficientScope(
            f"A priority above 0 needs the scope {Scope.JOBS_PRIORITY}; leave it out or use 0."
        )


def _find_method(context: ServiceContext, request: JobRequest) -> MethodDescriptor:
    found = context.methods.find(request.method, request.method_version)
    if found is not None:
        return found
    newest = context.methods.find(request.method)
    if newest is None:
        known = [method.name for method in context.methods.newest()]
        message = f"There is no method {request.method!r}. {did_you_mean(request.method, known)}"
        finding = Finding("/method", "unknown_method", message)
    else:
        message = (
            f"There is no version {request.method_version} of {request.method}: "
            f"the newest is {newest.version}; leave the field out to get it."
        )
        finding = Finding("/method_version", "unknown_method_version", message)
    raise ValidationFailed("The method is not known.", findings=[finding])


def _read_config(method: MethodDescriptor, config: dict[str, Any]) -> MethodConfig:
    try:
        return method.config.model_validate(config)
    except ValidationError as exc:
        raise _config_error(method, exc) from exc


def _config_error(method: MethodDescriptor, exc: ValidationError) -> ConfigInvalid:
    errors: Iterable[Any] = exc.errors(include_url=False)
    findings = findings_of(list(errors), method.config, prefix=("config",))
    return ConfigInvalid(f"The config does not fit {method.name}.", findings=findings)


def _version_id(reference: ModelReference) -> UUID | None:
    if reference.version_id is None:
        return None
    version_id = parse_id(IdPrefix.MODEL_VERSION, reference.version_id)
    if version_id is None:
        raise _no_version()
    return version_id


def _no_version() -> ModelNotFound:
    message = (
        "Give the id of a model version of this project (mv_...): "
        "a finished job shows it as result.model_version_id."
    )
    finding = Finding("/model/version_id", "model_version_not_found", message)
    return ModelNotFound("There is no such model version.", findings=[finding])


def _inspect(
    context: ServiceContext, principal: Principal, reference: ModelReference, version: UUID | None
) -> InspectedModel:
    if version is not None:
        return _inspect_version(context, principal, version, str(reference.version_id))
    if reference.hub is not None:
        return _inspect_hub(context, principal, reference.hub, reference.revision or "main")
    source: ModelSource = PathSource(reference.path or "")
    if reference.demo is not None:
        source = DemoSource(reference.demo)
    return inspect_source(source, settings=context.intake)


def _inspect_hub(
    context: ServiceContext, principal: Principal, repo_id: str, revision: str
) -> InspectedModel:
    intake = context.intake
    if intake.hub is not None:
        with context.database.read() as session:
            hub = hub_of_project(intake.hub, session, context.secrets, principal.project_id)
        intake = replace(intake, hub=hub)
    return inspect_source(HubSource(repo_id, revision), settings=intake)


def _inspect_version(
    context: ServiceContext, principal: Principal, version: UUID, shown_id: str
) -> InspectedModel:
    with unit_of_work(context.database, principal) as u:
        files = u.models.stored_files(version)
        origin = u.models.origin(version)
    if not files:
        raise _no_version()
    keys = {file.sha256: file.storage_key for file in files}

    def read_blob(sha256: str, start: int, end: int) -> bytes:
        return context.store.get_range(keys[sha256], start, end)

    inspected = inspect_source(
        VersionSource(shown_id),
        settings=context.intake,
        stored_files=[FileFact(file.path, file.size_bytes, file.sha256) for file in files],
        read_blob=read_blob,
    )
    return inspected if origin is None else _with_origin(inspected, origin)


def _with_origin(inspected: InspectedModel, origin: VersionOrigin) -> InspectedModel:
    """Keep with the pinned version what a reader knows it by: its job and its base model."""
    pinned = inspected.pinned.copy()
    pinned["job_id"] = format_id(IdPrefix.JOB, origin.job_id)
    name = origin.base_source.get("base_name") or shown_name(origin.base_source)
    if name:
        pinned["base_name"] = str(name)
    return replace(inspected, pinned=pinned)


def _check(
    method: MethodDescriptor, config: MethodConfig, facts: ModelFacts
) -> tuple[MethodConfig, CheckResult]:
    try:
        resolved = method.resolve(config)
    except ValidationError as exc:
        raise _config_error(method, exc) from exc
    result = method.check(resolved, facts)
    if result.incompatible:
        detail = f"{method.name} cannot work on this model."
        raise MethodModelIncompatible(detail, findings=_shown(result.incompatible))
    if result.invalid:
        detail = f"The config does not fit {method.name} on this model."
        raise ConfigInvalid(detail, findings=_shown(result.invalid))
    return resolved, result


def _check_key(
    method: MethodDescriptor, config: dict[str, Any], inspected: InspectedModel
) -> tuple[str, str, str, str] | None:
    """Name what a check depends on; None where that may change, or the config is large."""
    # Not sorted: a resolved config keeps the order that it was sent in.
    sent = json.dumps(config)
    if inspected.content_key is None or len(sent) > MAX_KEPT_CONFIG_LENGTH:
        return None
    return method.name, method.version, sent, inspected.content_key


def _shown(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    return limited(findings, len(findings))


def _check_outputs(
    outputs: OutputsRequest, config: MethodConfig, facts: ModelFacts
) -> tuple[str, ...]:
    """Refuse outputs that cannot be had; give warnings of a format that can."""
    if not config.writes_model:
        findings = list(_idle_outputs(outputs))
        if findings:
            raise ValidationFailed("A job with this config makes no model.", findings=findings)
        return ()
    if "gguf" not in outputs.formats:
        return ()
    if obstacles := gguf_findings(facts):
        raise ValidationFailed("The model cannot be exported to GGUF.", findings=obstacles)
    return gguf_warnings(facts)


def _idle_outputs(outputs: OutputsRequest) -> Iterator[Finding]:
    if "gguf" in outputs.formats:
        message = "A job with this config makes no model; leave gguf out of the formats."
        yield Finding("/outputs/formats", "no_model_to_export", message)
    if outputs.register_as is not None:
        message = "A job with this config makes no model; leave register_as out."
        yield Finding("/outputs/register_as", "no_model_to_register", message)


def _resolved_spec(
    settings: Settings,
    request: JobRequest,
    method: MethodDescriptor,
    config: MethodConfig,
    inspected: InspectedModel,
    *,
    device_class: str,
    benchmarks: tuple[ResolvedBenchmark, ...],
) -> ResolvedSpec:
    outputs = request.outputs
    return ResolvedSpec(
        kind=request.kind,
        name=request.name,
        method=method.name,
        method_version=method.version,
        model=dict(inspected.pinned),
        config=config.model_dump(mode="json"),
        benchmarks=benchmarks,
        resources=ResolvedResources(
            device_class=device_class,
            dtype=request.resources.dtype,
            max_runtime_s=choose_runtime(settings, request.resources.max_runtime_s),
        ),
        outputs=ResolvedOutputs(
            register_as=outputs.register_as,
            formats=tuple(outputs.formats),
            plots=outputs.plots,
            keep_checkpoints=outputs.keep_checkpoints,
        ),
        max_attempts=request.retry.max_attempts,
        seed=request.seed,
        priority=request.priority,
        labels=request.labels,
    )
