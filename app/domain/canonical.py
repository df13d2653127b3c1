"""Canonical JSON and the hashes made of it."""

import hashlib
import json
from typing import Any


def canonical_json(value: Any) -> bytes:
    """Serialise `value` with keys in RFC 8785 order (UTF-16 code units) and no white space.

    Raises
    ------
    ValueError
        For NaN and infinities, which JSON cannot carry.
    """
    return json.dumps(
        _ordered(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False
    ).encode("utf-8", errors="surrogatepass")


def canonical_sha256(value: Any) -> str:
    """Hexadecimal SHA-256 of the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: str(key).encode("utf-16-be", errors="surrogatepass"))
        return {str(key): _ordered(value[key]) for key in keys}
    if isinstance(value, list | tuple):
        return [_ordered(item) for item in value]
    return value
