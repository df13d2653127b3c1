"""Entity tags: cheap polling with `If-None-Match`, safe writing with `If-Match`."""

import re
from collections.abc import Iterator
from typing import Annotated

from fastapi import Depends, Request
from starlette.responses import Response

from app.domain.errors import BadRequest

_TAG = re.compile(r'\s*(W/)?"([\x21\x23-\x7e]*)"\s*(?:,|$)')


def version_tag(version: int) -> str:
    """Write a row's version as a strong entity tag."""
    return f'"{version}"'


def is_unchanged(request: Request, tag: str) -> bool:
    """Tell whether the client already holds the representation with this tag."""
    header = request.headers.get("if-none-match")
    if header is None:
        return False
    return header.strip() == "*" or tag.strip('"') in {text for _, text in _tags(header)}


def not_modified(tag: str) -> Response:
    """Answer that nothing changed."""
    return Response(status_code=304, headers={"ETag": tag})


def _expected_versions(request: Request) -> frozenset[int] | None:
    """Versions that `If-Match` allows; None when it allows any."""
    header = request.headers.get("if-match")
    if header is None or header.strip() == "*":
        return None
    tags = list(_tags(header))
    if not tags:
        raise BadRequest("If-Match must hold entity tags in quotes, as the ETag header gave them.")
    return frozenset(int(text) for weak, text in tags if not weak and text.isdigit())


ExpectedVersions = Annotated[frozenset[int] | None, Depends(_expected_versions)]


def _tags(header: str) -> Iterator[tuple[bool, str]]:
    for match in _TAG.finditer(header):
        yield bool(match[1]), match[2]
