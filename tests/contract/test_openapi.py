"""The OpenAPI document: complete, true to its examples, and the one that is committed."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import TypeAdapter

from app.api.openapi import REQUESTS, RESPONSES, api_routes
from app.api.problems import all_problems
from app.cli.reference import openapi_document
from app.main import create_app
from app.settings import Settings

WITHOUT_JSON_ANSWER = {
    "deleteJob",
    "deleteSecret",
    "revokeApiKey",
    "getArtifactContent",
    "getDownload",
    "getServiceMetrics",
}
VERBS = (
    "create|list|get|update|delete|set|collect|estimate"
    "|pause|resume|cancel|retry|revoke|rotate|drain"
)


@pytest.fixture(scope="module")
def app() -> FastAPI:
    return create_app(Settings(_env_file=None))


@pytest.fixture(scope="module")
def document(app: FastAPI) -> dict[str, Any]:
    return app.openapi()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for operation in methods.values():
            yield path, operation


def test_document_does_not_depend_on_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = openapi_document()
    monkeypatch.setenv("DEBIAS_MAX_BODY_BYTES", "2048")
    monkeypatch.setenv("DEBIAS_EXTRA_METHODS", "app.catalog.testkit.fake")

    assert openapi_document() == expected


def test_every_operation_is_described(document: dict[str, Any]) -> None:
    ids = [operation["operationId"] for _, operation in operations(document)]

    assert document["openapi"].startswith("3.1")
    assert len(ids) == len(set(ids))
    for _, operation in operations(document):
        name = operation["operationId"]
        assert re.fullmatch(rf"({VERBS})[A-Z][A-Za-z]*", name), name
        assert operation["summary"], name
        assert operation["description"], name
        assert operation["tags"], name


def test_every_operation_names_its_problems(document: dict[str, Any]) -> None:
    for path, operation in operations(document):
        responses = operation["responses"]
        assert "500" in responses, path
        if path.startswith("/v1/"):
            assert {"400", "401", "403", "406", "422", "429", "503"} <= responses.keys(), path
            assert operation["security"] == [{"apiKey": []}]
        for status, response in responses.items():
            if int(status) >= 400:
                assert list(response["content"]) == ["application/problem+json"], (path, status)


def test_every_problem_in_the_document_has_a_page(document: dict[str, Any]) -> None:
    named = set(re.findall(r'"/problems/([a-z_]+)"', json.dumps(document)))

    assert named - {"not_found"} <= all_problems().keys()


def test_every_json_answer_and_request_has_an_example(document: dict[str, Any]) -> None:
    for _, operation in operations(document):
        name = operation["operationId"]
        assert name in RESPONSES or name in WITHOUT_JSON_ANSWER, name
        assert ("requestBody" in operation) == (name in REQUESTS), name


def routes_by_name(app: FastAPI) -> dict[str, APIRoute]:
    return {str(route.operation_id): route for route in api_routes(app)}


@pytest.mark.parametrize("name", sorted(RESPONSES))
def test_response_example_fits_its_schema(app: FastAPI, name: str) -> None:
    route = routes_by_name(app)[name]

    shown = RESPONSES[name][1]
    adapter: TypeAdapter[Any] = TypeAdapter(route.response_model)
    adapter.validate_json(json.dumps(shown))


@pytest.mark.parametrize("name", sorted(REQUESTS))
def test_request_example_fits_its_schema(app: FastAPI, name: str) -> None:
    field = routes_by_name(app)[name].body_field
    assert field is not None

    adapter: TypeAdapter[Any] = TypeAdapter(field.field_info.annotation or object)
    adapter.validate_python(REQUESTS[name])


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    names = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)))

    assert names <= document["components"]["schemas"].keys()
