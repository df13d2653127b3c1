"""Read query strings: a parameter that has one value is not given twice."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, get_origin

from fastapi import Request
from pydantic import BaseModel

from app.domain.errors import BadRequest, Finding


async def refuse_repeated(request: Request) -> None:
    """Refuse a repeated parameter of one value: no choice between the values would be right.

    A coroutine, as all dependencies that do no I/O: for others a thread is woken at each request.

    Raises
    ------
    BadRequest
        Names the first such parameter.
    """
    counts = Counter(name for name, _ in request.query_params.multi_items())
    repeated = {name for name, count in counts.items() if count > 1}
    if not repeated:
        return
    dependant = getattr(request.scope.get("route"), "dependant", None)
    for name, annotation in _parameters(getattr(dependant, "query_params", ())):
        if name in repeated and get_origin(annotation) not in (list, tuple, set):
            message = f"Give the parameter {name} once."
            raise BadRequest(message, findings=[Finding(f"query:{name}", "repeated", message)])


def _parameters(fields: Any) -> Iterator[tuple[str, Any]]:
    """Give name and type of each query parameter; those of one model are its fields."""
    for field in fields:
        annotation = field.field_info.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            for name, part in annotation.model_fields.items():
                yield part.alias or name, part.annotation
        else:
            yield field.alias, annotation
