"""Read collections page by page."""

from collections.abc import Iterator

from debias_client.errors import UnexpectedAnswer
from debias_client.schemas import JsonValue
from debias_client.transport import QueryParams, Transport


def read_pages(
    transport: Transport, path: str, params: QueryParams | None = None
) -> Iterator[dict[str, JsonValue]]:
    """Give the items of a collection, asking for the next page only when it is needed."""
    query = dict(params or {})
    while True:
        page = as_object(transport.get(path, query), path)
        items = page.get("data")
        if not isinstance(items, list):
            raise UnexpectedAnswer(f"{path} did not answer with a page")
        for item in items:
            yield as_object(item, path)
        cursor = page.get("next_cursor")
        if not isinstance(cursor, str):
            return
        query["cursor"] = cursor


def as_object(value: JsonValue, path: str) -> dict[str, JsonValue]:
    """Make sure that an answer is a JSON object."""
    if not isinstance(value, dict):
        raise UnexpectedAnswer(f"{path} did not answer with a JSON object")
    return value
