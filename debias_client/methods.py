"""The catalogue of methods."""

from typing import cast
from urllib.parse import quote

from debias_client.pages import as_object, read_pages
from debias_client.schemas import Method
from debias_client.transport import Transport


class Methods:
    """What the service can do to a model."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> tuple[Method, ...]:
        """Give all methods, without their config schemas."""
        return tuple(cast("Method", item) for item in read_pages(self._transport, "/v1/methods"))

    def get(self, name: str) -> Method:
        """Give one method with the JSON Schema of its config and an example."""
        path = f"/v1/methods/{quote(name, safe='')}"
        return cast("Method", as_object(self._transport.get(path), path))
