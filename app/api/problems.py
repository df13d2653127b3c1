"""Problem responses for the OpenAPI document, and the registry of codes."""

from typing import Any

from app.api.errors import PROBLEM_MEDIA_TYPE
from app.domain.errors import (
    BadRequest,
    DebiasError,
    InsufficientScope,
    Internal,
    NotAcceptable,
    RateLimited,
    Unauthenticated,
    Unavailable,
    ValidationFailed,
)

Responses = dict[int | str, dict[str, Any]]

EVERYWHERE = (
    BadRequest,
    Unauthenticated,
    InsufficientScope,
    NotAcceptable,
    ValidationFailed,
    RateLimited,
    Internal,
    Unavailable,
)


def problems(*kinds: type[DebiasError]) -> Responses:
    """Describe the errors that a `/v1` operation can answer with, those of all of them included."""
    return _responses((*EVERYWHERE, *kinds))


def public_problems(*kinds: type[DebiasError]) -> Responses:
    """Describe the errors of an operation that needs no key."""
    return _responses((NotAcceptable, Internal, *kinds))


def all_problems() -> dict[str, type[DebiasError]]:
    """Every problem code with the class that fixes it."""
    kinds = _subclasses(DebiasError)
    return {kind.code: kind for kind in kinds if "code" in vars(kind)}


def media(*media_types: str) -> Responses:
    """Name further representations of a successful answer."""
    return {200: {"content": {media_type: {} for media_type in media_types}}}


def _subclasses(kind: type[DebiasError]) -> list[type[DebiasError]]:
    return [found for sub in kind.__subclasses__() for found in (sub, *_subclasses(sub))]


def _responses(kinds: tuple[type[DebiasError], ...]) -> Responses:
    by_status: dict[int, list[type[DebiasError]]] = {}
    for kind in dict.fromkeys(kinds):
        by_status.setdefault(kind.status, []).append(kind)
    return {status: _response(found) for status, found in sorted(by_status.items())}


def _response(kinds: list[type[DebiasError]]) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    examples = {kind.code: {"value": _example(kind)} for kind in kinds}
    return {
        "description": "; ".join(f"`{kind.code}`" for kind in kinds),
        "content": {PROBLEM_MEDIA_TYPE: {"schema": schema, "examples": examples}},
    }


def _example(kind: type[DebiasError]) -> dict[str, Any]:
    return {
        "type": f"/problems/{kind.code}",
        "title": kind.title,
        "status": kind.status,
        "detail": first_sentence(kind),
        "instance": "/v1/...",
        "code": kind.code,
        "request_id": "4f2d8c0e6b7a4d0f9a3c5e1b2d4f6a80",
    }


def first_sentence(kind: type[DebiasError]) -> str:
    """Give the explanation of a code: the docstring of its class in one line."""
    return " ".join((kind.__doc__ or "").split())
