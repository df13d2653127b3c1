"""Validation errors as findings."""

from collections.abc import Iterator
from typing import Annotated

import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model

from app.domain.errors import Finding
from app.domain.findings import MAX_FINDINGS, did_you_mean, findings_of, json_pointer, limited
from app.schemas.base import Labels


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    alpha: float = 0.5
    beta: int = 1


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    inner: Inner | None = None
    many: list[Inner] = []
    named: dict[str, Inner] = {}


def findings(body: object) -> list[tuple[str, str, str]]:
    with pytest.raises(ValidationError) as error:
        Outer.model_validate(body)
    found = findings_of(error.value.errors(), Outer, prefix=("config",))
    return [(one.pointer, one.code, one.message) for one in found]


@pytest.mark.parametrize(
    ("entries", "pointer"),
    [
        ({"": "x"}, "/config/"),
        ({"a b": "x"}, "/config/a b"),
        ({"[key]": 5}, "/config/[key]"),
        ({"[key]": "x"}, "/config/[key]"),
    ],
    ids=["empty key", "bad key", "bad value of a key in brackets", "key in brackets"],
)
def test_pointer_leads_to_the_entry_whose_key_is_wrong(
    entries: dict[str, object], pointer: str
) -> None:
    with pytest.raises(ValidationError) as error:
        TypeAdapter(Labels).validate_python(entries, strict=True)

    found = findings_of(error.value.errors(), None, prefix=("config",))

    assert pointer in [finding.pointer for finding in found]


@pytest.mark.parametrize(
    ("location", "pointer"),
    [((), ""), (("a", 0, "b"), "/a/0/b"), (("a/b", "c~d"), "/a~1b/c~0d")],
)
def test_pointer_follows_rfc_6901(location: tuple[int | str, ...], pointer: str) -> None:
    assert json_pointer(location) == pointer


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"inner": {"alfa": 1}}, "/config/inner/alfa"),
        ({"many": [{}, {"alfa": 1}]}, "/config/many/1/alfa"),
        ({"named": {"x": {"alfa": 1}}}, "/config/named/x/alfa"),
    ],
)
def test_misspelt_field_gets_a_suggestion_at_any_depth(body: object, pointer: str) -> None:
    (found,) = findings(body)

    assert found == (pointer, "unknown_field", "Unknown field 'alfa'. Did you mean 'alpha'?")


def test_a_list_whose_entries_are_wrong_is_not_called_too_short() -> None:
    layers = TypeAdapter(Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)])

    found = {}
    for sent in ((-1,), ()):
        with pytest.raises(ValidationError) as error:
            layers.validate_python(sent)
        found[sent] = [one.code for one in findings_of(error.value.errors(), None)]

    assert found == {(-1,): ["greater_than_equal"], (): ["too_short"]}


def test_field_like_no_other_gets_the_list() -> None:
    ((_, _, message),) = findings({"zzz": 1})

    assert message == "Unknown field 'zzz'. Known here: inner, many, named."


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (True, "Give a whole number here, not true."),
        ("1", "Give a whole number here, not text."),
        (None, "Give a whole number here, not null."),
        ([1], "Give a whole number here, not an array."),
    ],
)
def test_wrong_type_is_named(value: object, message: str) -> None:
    ((_, _, said),) = findings({"inner": {"beta": value}})

    assert said == message


def test_suggestion_needs_some_likeness() -> None:
    assert did_you_mean("steps", []) == "Leave it out."
    assert did_you_mean("step", ["steps", "seed"]) == "Did you mean 'steps'?"


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (tuple[int, ...], "Give at least 1 item here."),
        (list[int], "Give at least 1 item here."),
        (dict[str, int], "Give at least 1 item here."),
    ],
)
def test_number_of_items_is_told_without_words_of_python(field: type, message: str) -> None:
    model = create_model("Counted", items=(field, Field(min_length=1)))
    with pytest.raises(ValidationError) as error:
        model.model_validate({"items": {} if field == dict[str, int] else []})

    assert [one.message for one in findings_of(error.value.errors(), model)] == [message]


def test_no_finding_is_made_beyond_those_that_are_shown() -> None:
    made = []

    def find() -> Iterator[Finding]:
        for number in range(1000):
            made.append(number)
            yield Finding(f"/{number}", "unknown_field", "Leave it out.")

    found = limited(find(), 1000)

    assert len(made) == MAX_FINDINGS
    assert [one.pointer for one in found[:-1]] == [f"/{n}" for n in range(MAX_FINDINGS)]
    assert found[-1].message == "There are 950 more findings; correct the ones above first."


def test_long_pointer_is_cut() -> None:
    assert json_pointer(("k" * 1_000_000, 5)) == "/" + "k" * 299 + "..."
