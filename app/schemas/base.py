"""What all request and response bodies share."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
    field_validator,
)
from pydantic_core import PydanticCustomError

from app.domain.clock import format_time

ItemT = TypeVar("ItemT")

LABEL_KEY = r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$"
MAX_LABELS = 32
MAX_TEXT = 4096
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)

Timestamp = Annotated[
    datetime,
    PlainSerializer(format_time, return_type=str, when_used="json-unless-none"),
    Field(json_schema_extra={"format": "date-time"}),
]
"""A moment in UTC, shown as RFC 3339 with milliseconds and `Z`."""


def _require_written_time(value: object) -> object:
    """Refuse a number: the library would take it for seconds since 1970."""
    if isinstance(value, datetime) or (isinstance(value, str) and _DATE.match(value)):
        return value
    raise PydanticCustomError("datetime_type", "Give a time such as 2026-01-31T12:00:00Z.")


def _refuse_time_beyond_utc(value: datetime) -> datetime:
    """Refuse a time near the ends of the calendar that its zone carries over them."""
    if value.tzinfo is not None:
        try:
            value.astimezone(UTC)
        except OverflowError as exc:
            message = "Give a time whose year, in UTC, is between 1 and 9999."
            raise PydanticCustomError("time_out_of_range", message) from exc
    return value


Moment = Annotated[
    datetime, BeforeValidator(_require_written_time), AfterValidator(_refuse_time_beyond_utc)
]
"""A time in a request; whether it needs a zone is for the field to say."""

AwareMoment = Annotated[
    AwareDatetime, BeforeValidator(_require_written_time), AfterValidator(_refuse_time_beyond_utc)
]
"""A time with a zone in a request."""

JsonObject = dict[str, Any]
Labels = Annotated[
    dict[
        Annotated[str, StringConstraints(pattern=LABEL_KEY)],
        Annotated[str, StringConstraints(max_length=256)],
    ],
    Field(max_length=MAX_LABELS),
]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Nonfinite = Literal["nan", "inf", "-inf"]


class RequestBody(BaseModel):
    """Base of request bodies: unknown fields and silent conversions are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class QueryParameters(BaseModel):
    """Base of query strings: a misspelt filter is refused, not ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_nul(cls, value: object) -> object:
        """Refuse what no database column can be compared with."""
        if any(isinstance(text, str) and "\x00" in text for text in _values(value)):
            raise PydanticCustomError("nul_character", "Leave out the NUL character.")
        return value


def _values(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else [value]


class PageParameters(QueryParameters):
    """Which page of a list."""

    limit: Annotated[int, Field(ge=1, le=100, description="Most items on the page.")] = 20
    cursor: Annotated[
        str | None, Field(max_length=500, description="`next_cursor` of the page before.")
    ] = None


class ResponseBody(BaseModel):
    """Base of response bodies."""

    model_config = ConfigDict(frozen=True, serialize_by_alias=True)


class Page(ResponseBody, Generic[ItemT]):
    """One page of a list, newest first. There is no total: counting would cost a scan."""

    data: list[ItemT]
    has_more: bool
    next_cursor: str | None


class Listing(ResponseBody, Generic[ItemT]):
    """A list that is always complete."""

    data: list[ItemT]
