"""Turn validation errors into findings: where, and what to do about it."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from app.domain.errors import Finding

Location = tuple[int | str, ...]
SHOWN_CHOICES = 20
# One body of 1 MiB can be wrong in 100,000 places, and each finding costs time and bytes.
MAX_FINDINGS = 50
# No pointer to a field that exists is as long; a body can name a key of a megabyte.
MAX_POINTER_LENGTH = 300
_COMPARED_LENGTH = 64

_EXPECTED = {
    "string_type": "text in quotes",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "list_type": "an array",
    "tuple_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "datetime_type": "a time such as 2026-01-31T12:00:00Z",
    "datetime_parsing": "a time such as 2026-01-31T12:00:00Z",
    "datetime_from_date_parsing": "a time such as 2026-01-31T12:00:00Z",
}
# The library names its own containers: "Tuple should have at least 1 item after validation, not 0".
_COUNT = re.compile(r"^\w+ should have (at (?:least|most) \d+ items?) after validation.*$")


def json_pointer(location: Iterable[int | str]) -> str:
    """Write a location as an RFC 6901 JSON pointer, cut where it is too long to be shown."""
    pointer = ""
    for part in location:
        shown = str(part)[: MAX_POINTER_LENGTH + 1].replace("~", "~0").replace("/", "~1")
        pointer += f"/{shown}"
        if len(pointer) > MAX_POINTER_LENGTH:
            return f"{pointer[:MAX_POINTER_LENGTH]}..."
    return pointer


def limited(found: Iterable[Finding], count: int) -> tuple[Finding, ...]:
    """Take the first of `count` findings, none beyond them, and a note on how many more are."""
    shown = tuple(dict.fromkeys(islice(found, MAX_FINDINGS)))
    if count <= MAX_FINDINGS:
        return shown
    message = f"There are {count - MAX_FINDINGS} more findings; correct the ones above first."
    return (*shown, Finding("", "more_findings", message))


def findings_of(
    errors: Sequence[Mapping[str, Any]], model: type[BaseModel] | None, *, prefix: Location = ()
) -> tuple[Finding, ...]:
    """Rewrite pydantic's errors about `model` as findings below `prefix`, as many as are shown."""
    own = [error for error in errors if not _is_echo(error)]
    return limited((_finding(error, model, prefix) for error in own), len(own))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Give a sentence that names what was probably meant, or what there is."""
    choices = sorted(known)
    close = difflib.get_close_matches(name[:_COMPARED_LENGTH], choices, n=1, cutoff=0.6)
    if close:
        return f"Did you mean {close[0]!r}?"
    if not choices:
        return "Leave it out."
    listed = ", ".join(choices[:SHOWN_CHOICES])
    return f"Known here: {listed}{', ...' if len(choices) > SHOWN_CHOICES else ''}."


def _finding(error: Mapping[str, Any], model: type[BaseModel] | None, prefix: Location) -> Finding:
    location = _place(error)
    code = str(error["type"])
    if code == "extra_forbidden":
        known = _field_names(model, location[:-1])
        hint = did_you_mean(str(location[-1]), known)
        message = f"Unknown field {_quoted(str(location[-1]))}. {hint}"
        code = "unknown_field"
    elif code == "missing" and not location:
        message = "Send a JSON object as the body."
    elif code == "missing":
        message = f"Add the field {location[-1]!r}: it is required."
    elif code in ("too_short", "too_long"):
        message = _COUNT.sub(r"Give \1 here.", str(error["msg"]))
    elif code in _EXPECTED:
        message = f"Give {_EXPECTED[code]} here, not {_describe(error.get('input'))}."
    else:
        message = _sentence(str(error["msg"]))
    return Finding(json_pointer((*prefix, *location)), code, message)


def _quoted(name: str) -> str:
    return repr(name if len(name) <= _COMPARED_LENGTH else f"{name[:_COMPARED_LENGTH]}...")


def _is_echo(error: Mapping[str, Any]) -> bool:
    """Tell a list that counts as short only because entries of it were refused already."""
    sent = error.get("input")
    return (
        error["type"] == "too_short"
        and isinstance(sent, list | tuple | dict)
        and len(sent) >= error["ctx"]["min_length"]
    )


def _place(error: Mapping[str, Any]) -> Location:
    """Give the location; the library adds `[key]` where the key of an entry is wrong."""
    location = tuple(error["loc"])
    is_key = len(location) > 1 and location[-1] == "[key]" and error.get("input") == location[-2]
    return location[:-1] if is_key else location


def _describe(value: Any) -> str:
    """Name the JSON type of what came, without repeating the value itself."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    names = {int: "a number", float: "a number", str: "text", list: "an array", dict: "an object"}
    return names.get(type(value), "this value")


def _sentence(message: str) -> str:
    text = message.removeprefix("Value error, ").strip()
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _field_names(model: type[BaseModel] | None, location: Location) -> set[str]:
    """Names of the fields that may stand at `location` of a body of type `model`."""
    candidates: list[Any] = [model]
    for part in location:
        candidates = [step for one in candidates for step in _step(one, part)]
    models = [one for outer in candidates for one in _models_in(outer)]
    return {field.alias or name for one in models for name, field in one.model_fields.items()}


def _step(annotation: Any, part: int | str) -> list[Any]:
    """Annotations one level further in."""
    found: list[Any] = []
    if isinstance(part, int) or not _has_field(annotation, part):
        # Into an item of a list, a value of a mapping, or one member of a union.
        found += _models_in(annotation)
    for model in _models_in(annotation):
        found += [
            field.annotation
            for name, field in model.model_fields.items()
            if part in (name, field.alias)
        ]
    return found


def _has_field(annotation: Any, name: str) -> bool:
    return any(name in model.model_fields for model in _models_in(annotation))


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    """Models that an annotation leads to through unions, containers and `Annotated`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    origin = get_origin(annotation)
    if origin is None:
        return []
    arguments = get_args(annotation)
    if origin is Annotated:
        arguments = arguments[:1]
    elif origin not in (Union, UnionType, list, tuple, dict):
        return []
    return [model for argument in arguments for model in _models_in(argument)]
