"""Every error as `application/problem+json`, from one place."""

from collections.abc import Iterable, Mapping
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Route
from starlette.types import Scope

from app.db.session import OUTAGE_ERRORS
from app.domain.errors import (
    BadRequest,
    DebiasError,
    Finding,
    Internal,
    MethodNotAllowed,
    NotFound,
    Unavailable,
    ValidationFailed,
)
from app.domain.findings import MAX_FINDINGS, did_you_mean, findings_of, limited

PROBLEM_MEDIA_TYPE = "application/problem+json"
DEFAULT_RETRY_S = 5
AUTHENTICATE = {"WWW-Authenticate": 'Bearer realm="evenhand"'}

logger = structlog.get_logger()


def problem_response(scope: Scope, error: DebiasError) -> Response:
    """Write an error as a problem document, with the headers that belong to it."""
    request_id = scope.get("state", {}).get("request_id", "")
    body: dict[str, Any] = {
        "type": f"/problems/{error.code}",
        "title": error.title,
        "status": error.status,
        "detail": error.detail,
        "instance": scope.get("path", ""),
        "code": error.code,
        "request_id": request_id,
    }
    if error.findings:
        body["errors"] = [_finding_body(finding) for finding in error.findings]
    headers = dict(error.headers or {})
    if error.status == 401:
        headers |= AUTHENTICATE
    retry_after_s = error.retry_after_s
    if retry_after_s is None and error.status == 503:
        retry_after_s = DEFAULT_RETRY_S
    if retry_after_s is not None:
        headers["Retry-After"] = str(retry_after_s)
    return JSONResponse(
        body, status_code=error.status, headers=headers, media_type=PROBLEM_MEDIA_TYPE
    )


def install_error_handlers(app: FastAPI) -> None:
    """Answer every kind of error with a problem document."""
    app.add_exception_handler(DebiasError, _on_debias_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(HTTPException, _on_http_exception)
    for kind in OUTAGE_ERRORS:
        app.add_exception_handler(kind, _on_database_gone)


def internal_error(scope: Scope, exc: Exception) -> Response:
    """Log a defect with its traceback and tell the client no more than the request id."""
    logger.error("request_failed", path=scope.get("path"), exc_info=exc)
    return problem_response(
        scope, Internal("The service has a defect here. Report the request id.")
    )


def _finding_body(finding: Finding) -> dict[str, str]:
    """Show a finding; one about the query or a header has `query:name` for a pointer."""
    place, separator, name = finding.pointer.partition(":")
    where = (
        {"parameter": name, "in": place}
        if separator and place in ("query", "header", "path")
        else {"pointer": finding.pointer}
    )
    return {**where, "code": finding.code, "message": finding.message}


async def _on_debias_error(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, DebiasError)  # noqa: S101 - registered for this class
    return problem_response(request.scope, exc)


async def _on_invalid_request(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, RequestValidationError)  # noqa: S101 - registered for this class
    errors = list(exc.errors())
    body_errors = [_below_body(error) for error in errors if error["loc"][0] == "body"]
    parameter_errors = [error for error in errors if error["loc"][0] != "body"]
    parameters = (_parameter_finding(error, request) for error in parameter_errors)
    findings = [
        *findings_of(body_errors, _body_model(request)),
        *limited(parameters, len(parameter_errors)),
    ]
    error = ValidationFailed(_summary(findings[0], len(findings)), findings=findings)
    return problem_response(request.scope, error)


async def _on_http_exception(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)  # noqa: S101 - registered for this class
    error: DebiasError = BadRequest(str(exc.detail))
    if exc.status_code == 404:
        error = NotFound("There is nothing at this path. Paths have no slash at the end.")
    elif exc.status_code == 405:
        error = _method_not_allowed(request)
    return problem_response(request.scope, error)


async def refuse_shadowed(request: Request) -> None:
    """Refuse `GET /v1/jobs/estimate`: a path of its own is no id, whatever the method.

    Raises
    ------
    MethodNotAllowed
        The request reached the route of an id, but another route has its very path.
    """
    path = request.url.path
    if getattr(request.scope.get("route"), "path", path) != path and path in _own_paths(request):
        raise _method_not_allowed(request)


def _own_paths(request: Request) -> frozenset[str]:
    """Paths without parameters, found at the first request."""
    state = request.app.state
    if not hasattr(state, "own_paths"):
        paths = (context.original_route for context in iter_route_contexts(request.app.routes))
        state.own_paths = frozenset(route.path for route in paths if isinstance(route, Route))
    found: frozenset[str] = state.own_paths
    return found


def _method_not_allowed(request: Request) -> MethodNotAllowed:
    allowed = ", ".join(_allowed_methods(request))
    return MethodNotAllowed(f"This path answers {allowed} only.", headers={"Allow": allowed})


def _allowed_methods(request: Request) -> list[str]:
    """Join the methods of all routes of a path: the framework names those of the first alone."""
    found = (context.original_route for context in iter_route_contexts(request.app.routes))
    routes = [
        route
        for route in found
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
    ]
    # What has this very path goes before routes that would take its last part for an id.
    own = [route for route in routes if route.path == request.url.path]
    methods = {method for route in own or routes for method in route.methods or ()}
    return sorted(methods | {"HEAD"} if "GET" in methods else methods)


async def _on_database_gone(request: Request, exc: Exception) -> Response:
    logger.warning("database_failed", path=request.url.path, error=str(exc.__cause__ or exc))
    error = Unavailable("The database does not answer at present; nothing was changed.")
    return problem_response(request.scope, error)


def _below_body(error: Mapping[str, Any]) -> dict[str, Any]:
    return {**error, "loc": tuple(error["loc"][1:])}


def _body_model(request: Request) -> type[BaseModel] | None:
    field = getattr(request.scope.get("route"), "body_field", None)
    annotation = getattr(getattr(field, "field_info", None), "annotation", None)
    return _model_of(annotation)


def _model_of(annotation: Any) -> type[BaseModel] | None:
    candidates: Iterable[Any] = getattr(annotation, "__args__", (annotation,))
    for candidate in candidates:
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _parameter_finding(error: Mapping[str, Any], request: Request) -> Finding:
    place, *rest = error["loc"]
    name = str(rest[0]) if rest else ""
    code = str(error["type"])
    message = f"{str(error['msg']).rstrip('.')}."
    if code == "extra_forbidden":
        code = "unknown_parameter"
        message = f"Unknown parameter {name!r}. {did_you_mean(name, _query_names(request))}"
    return Finding(f"{place}:{name}", code, message)


def _query_names(request: Request) -> set[str]:
    dependant = getattr(request.scope.get("route"), "dependant", None)
    fields = getattr(dependant, "query_params", ())
    models = (_model_of(field.field_info.annotation) for field in fields)
    return {name for model in models if model for name in model.model_fields}


def _summary(first: Finding, count: int) -> str:
    shown = f"{count} findings in all" if count <= MAX_FINDINGS else f"over {MAX_FINDINGS} findings"
    more = "" if count == 1 else f" ({shown})"
    return f"{first.message}{more}"
