"""API keys: how they look, how they are made, how a presented one is compared."""

import hashlib
import hmac
import re
import secrets
import string
from dataclasses import dataclass

_ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
PREFIX_LENGTH = 8
SECRET_LENGTH = 43  # 43 base62 characters carry 256 bits
_FORM = re.compile(rf"dbk_([0-9A-Za-z]{{{PREFIX_LENGTH}}})_([0-9A-Za-z]{{{SECRET_LENGTH}}})")

NO_DIGEST = "0" * 64
"""Compared against when no key has the presented prefix, so that both cases do the same work."""


@dataclass(frozen=True, slots=True)
class PresentedKey:
    """A key as a client sent it, split into what finds the row and what proves it."""

    prefix: str
    sha256: str


@dataclass(frozen=True, slots=True)
class GeneratedKey:
    """A new key: its text, and what is stored of it."""

    text: str
    prefix: str
    sha256: str


def new_key() -> GeneratedKey:
    """Make a key with 256 random bits."""
    prefix = _random(PREFIX_LENGTH)
    text = f"dbk_{prefix}_{_random(SECRET_LENGTH)}"
    return GeneratedKey(text, prefix, _sha256(text))


def read_key(text: str) -> PresentedKey | None:
    """Split a key; None when it does not have the form of one."""
    match = _FORM.fullmatch(text)
    if match is None:
        return None
    return PresentedKey(match[1], _sha256(text))


def read_authorization(header: str | None) -> PresentedKey | None:
    """Find the key in an `Authorization: Bearer ...` header."""
    scheme, _, value = (header or "").partition(" ")
    return read_key(value.strip()) if scheme.lower() == "bearer" else None


def same_digest(left: str, right: str) -> bool:
    """Compare two hexadecimal digests in constant time."""
    return hmac.compare_digest(left.encode(), right.encode())


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))
