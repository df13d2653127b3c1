"""Bodies of secrets. None of them is an answer that holds a value."""

from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr
from pydantic_core import PydanticCustomError

from app.schemas.base import RequestBody, ResponseBody, Timestamp

MIN_LENGTH, MAX_LENGTH = 8, 512
FORM = f"{MIN_LENGTH} to {MAX_LENGTH} printable ASCII characters without spaces"


def _fits_a_header(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    fits = MIN_LENGTH <= len(text) <= MAX_LENGTH and " " not in text
    if not (fits and text.isascii() and text.isprintable()):
        raise PydanticCustomError("not_a_token", f"Give {FORM}.")
    return value


class SecretRequest(RequestBody):
    """The value of a secret; it is never shown again."""

    value: Annotated[
        SecretStr,
        AfterValidator(_fits_a_header),
        Field(
            description=f"{FORM}.",
            json_schema_extra={"minLength": MIN_LENGTH, "maxLength": MAX_LENGTH},
        ),
    ]


class SecretBody(ResponseBody):
    """That a secret is set, and since when; not its value."""

    name: str
    created_at: Timestamp
    updated_at: Timestamp
