"""Bodies of secrets. None of them is an answer that holds a value."""

from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr
from pydantic_core import PydanticCustomError

from app.schemas.base import RequestBody, ResponseBody, Timestamp

MAX_SECRET_LENGTH = 512


def _fits_a_header(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if not (text.isascii() and text.isprintable() and " " not in text):
        raise PydanticCustomError("not_a_token", "Give printable ASCII without spaces.")
    return value


class SecretRequest(RequestBody):
    """The value of a secret; it is never shown again."""

    value: Annotated[
        SecretStr,
        AfterValidator(_fits_a_header),
        Field(
            min_length=8,
            max_length=MAX_SECRET_LENGTH,
            description="Printable ASCII without spaces.",
        ),
    ]


class SecretBody(ResponseBody):
    """That a secret is set, and since when; not its value."""

    name: str
    created_at: Timestamp
    updated_at: Timestamp
