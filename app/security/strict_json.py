"""Parse JSON that a stranger wrote: no duplicate keys, no NaN, limits on size and depth."""

import json
import math
import re
from collections import Counter
from typing import Any

# Commas and opening brackets: a byte of them becomes up to 100 bytes of Python objects (measured),
# so that their number, not the size of the text, limits the memory. The largest published models
# have some 20,000 tensors, of 10 parts each in a header.
MAX_PARTS = 1_000_000
# Python reads no longer ones either, but copies them first.
_LONG_NUMBER = re.compile(rb"[0-9]{4301}")
MAX_DEPTH = 32  # service.md 12: the limit for request bodies serves for model files too


class BrokenJson(ValueError):
    """The text is not the JSON it should be; the message says in what way."""


def parse_object(data: bytes, *, max_bytes: int, max_depth: int = MAX_DEPTH) -> dict[str, Any]:
    """Parse `data` as one JSON object.

    Raises `BrokenJson` where it is too long or has too many parts, is not UTF-8, not JSON, nested
    too deeply, names a key twice, or holds NaN or an infinity.
    """
    _check_size(data, max_bytes)
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_without_duplicates,
            parse_constant=_refuse_constant,
            parse_float=_finite,
        )
    except BrokenJson:
        raise
    except UnicodeDecodeError as exc:
        raise BrokenJson("it is not UTF-8 text") from exc
    except RecursionError as exc:
        raise BrokenJson("it is nested too deeply") from exc
    except ValueError as exc:
        raise BrokenJson("it is not valid JSON") from exc
    if not isinstance(value, dict):
        raise BrokenJson("it is not a JSON object")
    if _is_deeper_than(value, max_depth):
        raise BrokenJson(f"it is nested more than {max_depth} levels deep")
    return value


def _check_size(data: bytes, max_bytes: int) -> None:
    if len(data) > max_bytes:
        raise BrokenJson(f"it is larger than {max_bytes} bytes")
    if sum(map(data.count, (b",", b"{", b"["))) > MAX_PARTS:
        raise BrokenJson(f"it has more than {MAX_PARTS} parts")
    if _LONG_NUMBER.search(data):
        raise BrokenJson("it is not valid JSON: a number has more than 4,300 digits")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise BrokenJson(f"it names the key {printable(twice)} twice")
    return found


def _refuse_constant(name: str) -> None:
    raise BrokenJson(f"it holds {name}, which is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise BrokenJson(f"it holds {text[:20]}, which is too large for a number")
    return value


def _is_deeper_than(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return False
    return any(isinstance(item, dict | list) for item in level)


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def printable(text: str, limit: int = 80) -> str:
    """Quote `text` for a message: escaped, and cut after `limit` characters."""
    shown = text if len(text) <= limit else f"{text[:limit]}..."
    return json.dumps(shown)
