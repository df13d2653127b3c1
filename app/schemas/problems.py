"""The body of every error: RFC 9457 problem details."""

from typing import Literal

from pydantic import Field

from app.schemas.base import ResponseBody


class ProblemError(ResponseBody):
    """One thing wrong with the request: where, a stable code, and what to do."""

    pointer: str | None = Field(
        default=None,
        description="RFC 6901 JSON pointer into the body.",
        examples=["/config/fraction"],
    )
    parameter: str | None = Field(default=None, description="Name of a query parameter or header.")
    in_: Literal["query", "header", "path"] | None = Field(default=None, alias="in")
    code: str
    message: str


class Problem(ResponseBody):
    """Problem details (RFC 9457). `type` is a page of this service about the code."""

    type: str = Field(examples=["/problems/not_found"])
    title: str
    status: int
    detail: str
    instance: str
    code: str = Field(examples=["not_found"])
    request_id: str
    errors: list[ProblemError] | None = None


class ProblemPage(ResponseBody):
    """What a problem code means."""

    code: str
    title: str
    status: int
    explanation: str
