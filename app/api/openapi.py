"""The OpenAPI document: completed, deterministic, and committed as `openapi.json`."""

import json
from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, iter_route_contexts

from app.api import openapi_admin_examples, openapi_examples, openapi_tenant_examples
from app.api.deps import RequireScope
from app.schemas.problems import Problem

TITLE = "Evenhand"
DESCRIPTION = (
    "Edits biased neural networks and measures what became fairer, and at what cost. "
    "Additive changes may come at any time: ignore unknown fields of answers. "
    "`RateLimit` tells how many requests the key has left in this minute, `RateLimit-Policy` how "
    "many it has in all."
)
API_VERSION = "1.0.0"
# In the order of the reference: what a reader comes for first.
TAGS = {
    "jobs": "Ask for a fairer model, watch it being made, and fetch it with its report.",
    "artifacts": "Files of finished jobs.",
    "catalogue": "What can be asked for.",
    "keys": "API keys, and what the one in use may do.",
    "secrets": "What the service may use in the project's name, and shows to nobody.",
    "audit": "Who changed what.",
    "admin": "What operators do over all projects; needs the scope `admin`.",
    "system": "Health and explanations; no key needed.",
}
REQUESTS = (
    openapi_examples.REQUESTS | openapi_tenant_examples.REQUESTS | openapi_admin_examples.REQUESTS
)
RESPONSES = (
    openapi_examples.RESPONSES
    | openapi_tenant_examples.RESPONSES
    | openapi_admin_examples.RESPONSES
)
SECURITY_SCHEME = {
    "type": "http",
    "scheme": "bearer",
    "bearerFormat": "dbk_...",
    "description": "An API key of this service.",
}


def install_openapi(app: FastAPI) -> None:
    """Serve the completed document at `/openapi.json`, made at the first request for it."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = build_document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def build_document(app: FastAPI) -> dict[str, Any]:
    """Build the document with security, examples and the problem schema."""
    document = get_openapi(
        title=TITLE, version=API_VERSION, description=DESCRIPTION, routes=app.routes
    )
    document["tags"] = [{"name": name, "description": text} for name, text in TAGS.items()]
    components = document.setdefault("components", {})
    components["securitySchemes"] = {"apiKey": SECURITY_SCHEME}
    schemas = components.setdefault("schemas", {})
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= problem.pop("$defs", {}) | {"Problem": problem}
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    scopes = {route.operation_id: required_scope(route) for route in api_routes(app)}
    for operation in _operations(document):
        _complete(operation, scopes.get(operation["operationId"]))
    return document


def api_routes(app: FastAPI) -> list[APIRoute]:
    """List the routes that are operations of the API."""
    routes = (context.original_route for context in iter_route_contexts(app.routes))
    return [route for route in routes if isinstance(route, APIRoute)]


def required_scope(route: APIRoute) -> str | None:
    """Name the scope that a route declares; None for a public one."""
    found = (dependant.call for dependant in _dependants(route.dependant))
    scopes = [call.scope for call in found if isinstance(call, RequireScope)]
    return scopes[0] if scopes else None


def render_document(app: FastAPI) -> str:
    """Render the application's document, sorted, so that equal documents are equal files."""
    return json.dumps(app.openapi(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _dependants(dependant: Dependant) -> Iterator[Dependant]:
    yield dependant
    for inner in dependant.dependencies:
        yield from _dependants(inner)


def _operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path in document["paths"].values():
        yield from path.values()


def _complete(operation: dict[str, Any], scope: str | None) -> None:
    if scope is not None:
        operation["security"] = [{"apiKey": []}]
        operation["x-required-scope"] = str(scope)
    if "HTTPValidationError" in str(operation["responses"].get("422")):
        # FastAPI's own shape, which this service never answers with.
        del operation["responses"]["422"]
    name = operation["operationId"]
    if name in REQUESTS:
        content = operation["requestBody"]["content"]["application/json"]
        content["examples"] = {"example": {"value": REQUESTS[name]}}
    if name in RESPONSES:
        status, example = RESPONSES[name]
        content = operation["responses"][status]["content"]["application/json"]
        content["examples"] = {"example": {"value": example}}
