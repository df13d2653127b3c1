"""The catalogue: what can be asked for."""

from typing import Any

from fastapi import APIRouter, Depends, Request, Response
from starlette.responses import JSONResponse

from app.api.conditional import is_unchanged, not_modified
from app.api.deps import MethodsReader
from app.api.method_views import benchmark_body, benchmark_summary, method_body, method_summary
from app.api.negotiation import JSON, Represents, accepts_json
from app.api.problems import problems
from app.catalog.method import schema_of
from app.domain.canonical import canonical_sha256
from app.domain.errors import NotFound
from app.schemas.base import Listing
from app.schemas.methods import BenchmarkBody, BenchmarkSummary, MethodBody, MethodSummary
from app.services.methods import get_benchmark, get_method, list_methods

router = APIRouter(prefix="/v1", tags=["catalogue"])
SCHEMA_MEDIA_TYPE = "application/schema+json"


@router.get(
    "/methods",
    operation_id="listMethods",
    summary="List methods",
    responses=problems(),
    dependencies=[Depends(accepts_json)],
)
def get_methods(caller: MethodsReader) -> Listing[MethodSummary]:
    """List the newest version of every method, by name."""
    found = list_methods(caller.context.methods)
    return Listing(data=[method_summary(method) for method in found])


@router.get(
    "/methods/{name}",
    operation_id="getMethod",
    summary="Read a method",
    responses=problems(NotFound),
    dependencies=[Depends(accepts_json)],
)
def get_one_method(caller: MethodsReader, name: str) -> MethodBody:
    """Read a method with its config schema, an example and the metrics it reports."""
    return method_body(get_method(caller.context.methods, name))


@router.get(
    "/methods/{name}/schema",
    operation_id="getMethodSchema",
    summary="Read the config schema of a method",
    response_model=dict[str, Any],
    responses=problems(NotFound) | {304: {"description": "The client's copy is current."}},
    dependencies=[Depends(Represents(JSON, SCHEMA_MEDIA_TYPE))],
)
def get_method_schema(caller: MethodsReader, request: Request, name: str) -> Response:
    """Read the bare JSON Schema (2020-12) of the method's config."""
    method = get_method(caller.context.methods, name)
    path = f"/v1/methods/{name}/schema"
    base = str(caller.context.settings.public_url or request.base_url).rstrip("/")
    schema = {**schema_of(method), "$id": f"{base}{path}?version={method.version}"}
    tag = f'"{canonical_sha256(schema)[:32]}"'
    if is_unchanged(request, tag):
        return not_modified(tag)
    return JSONResponse(schema, headers={"ETag": tag})


@router.get(
    "/benchmarks",
    operation_id="listBenchmarks",
    summary="List benchmarks",
    responses=problems(),
    dependencies=[Depends(accepts_json)],
)
def get_benchmarks(caller: MethodsReader) -> Listing[BenchmarkSummary]:
    """List the benchmarks that can be run beside a method's own metrics, by name."""
    found = caller.context.benchmarks.newest()
    return Listing(data=[benchmark_summary(benchmark) for benchmark in found])


@router.get(
    "/benchmarks/{name}",
    operation_id="getBenchmark",
    summary="Read a benchmark",
    responses=problems(NotFound),
    dependencies=[Depends(accepts_json)],
)
def get_one_benchmark(caller: MethodsReader, name: str) -> BenchmarkBody:
    """Read a benchmark with its config schema, an example, its metrics and its data's licence."""
    return benchmark_body(get_benchmark(caller.context.benchmarks, name))
