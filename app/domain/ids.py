"""Identifiers: UUIDv7 inside, `prefix_` + 26 Crockford base32 characters outside."""

import secrets
from enum import StrEnum
from uuid import UUID

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_VALUES = {character: value for value, character in enumerate(_ALPHABET)}
_LENGTH = 26  # ceil(128 / 5)


class IdPrefix(StrEnum):
    """What an id names. Presentation only, but checked on input."""

    PROJECT = "prj"
    KEY = "key"
    MODEL = "mdl"
    MODEL_VERSION = "mv"
    JOB = "job"
    ATTEMPT = "att"
    ARTIFACT = "art"
    WORKER = "wrk"
    AUDIT = "aud"


def new_id(now_ms: int) -> UUID:
    """Make a UUIDv7 (RFC 9562, section 5.7) for the Unix time `now_ms` in milliseconds.

    Ids made in different milliseconds sort by creation.
    """
    random_bits = secrets.randbits(74)
    value = (now_ms & (2**48 - 1)) << 80
    value |= 0x7 << 76 | (random_bits >> 62) << 64
    value |= 0b10 << 62 | random_bits & (2**62 - 1)
    return UUID(int=value)


def format_id(prefix: IdPrefix, value: UUID) -> str:
    """Show `value` as users see it, for example `job_01k9x4m3...`."""
    number = value.int
    digits = []
    for _ in range(_LENGTH):
        number, digit = divmod(number, 32)
        digits.append(_ALPHABET[digit])
    return f"{prefix}_{''.join(reversed(digits))}"


def parse_id(prefix: IdPrefix, text: str) -> UUID | None:
    """Read an id of the given kind; None for another prefix or anything malformed."""
    head, separator, tail = text.partition("_")
    if head != prefix or not separator or len(tail) != _LENGTH:
        return None
    number = 0
    for character in tail:
        digit = _VALUES.get(character)
        if digit is None:
            return None
        number = number * 32 + digit
    return UUID(int=number) if number < 2**128 else None
