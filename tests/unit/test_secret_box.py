"""Secrets at rest: only the right key, project and name open one."""

from uuid import UUID

import pytest

from app.domain.errors import SecretUnreadable
from app.security.secrets import SecretBox

A, B = UUID(int=1), UUID(int=2)
OLD, NEW = "o" * 40, "n" * 40
VALUE = "hf_a_token_of_the_hub"


def seal(box: SecretBox) -> str:
    return box.seal(VALUE, project_id=A, name="hub_token")


def test_what_was_sealed_can_be_opened() -> None:
    box = SecretBox([NEW])

    assert box.open(seal(box), project_id=A, name="hub_token") == VALUE


def test_nothing_of_the_value_shows_and_no_two_are_alike() -> None:
    box = SecretBox([NEW])
    first, second = seal(box), seal(box)

    assert VALUE not in first
    assert first != second


@pytest.mark.parametrize(("project", "name"), [(B, "hub_token"), (A, "other")])
def test_copy_in_another_place_does_not_open(project: UUID, name: str) -> None:
    box = SecretBox([NEW])
    sealed = seal(box)

    with pytest.raises(SecretUnreadable):
        box.open(sealed, project_id=project, name=name)


@pytest.mark.parametrize("damage", ["", "x", "gAAAAA", "é", "changed", "cut"])
def test_damaged_secret_is_a_typed_error_with_what_to_do(damage: str) -> None:
    box = SecretBox([NEW])
    sealed = seal(box)
    damaged = {"changed": sealed[:-5] + "AAAA=", "cut": sealed[:40]}.get(damage, damage)

    with pytest.raises(SecretUnreadable) as caught:
        box.open(damaged, project_id=A, name="hub_token")

    assert "PUT /v1/secrets/hub_token" in caught.value.detail
    assert "DEBIAS_SECRET_KEY" in caught.value.detail


def test_former_key_behind_the_new_one_still_opens() -> None:
    sealed = seal(SecretBox([OLD]))
    both = SecretBox([NEW, OLD])

    assert both.open(sealed, project_id=A, name="hub_token") == VALUE
    assert not both.is_current(sealed)
    with pytest.raises(SecretUnreadable):
        SecretBox([NEW]).open(sealed, project_id=A, name="hub_token")


def test_resealed_secret_needs_the_new_key_only() -> None:
    sealed = seal(SecretBox([OLD]))

    renewed = SecretBox([NEW, OLD]).reseal(sealed, name="hub_token")

    assert SecretBox([NEW]).is_current(renewed)
    assert SecretBox([NEW]).open(renewed, project_id=A, name="hub_token") == VALUE


def test_what_no_key_opens_cannot_be_resealed() -> None:
    with pytest.raises(SecretUnreadable):
        SecretBox([NEW]).reseal(seal(SecretBox([OLD])), name="hub_token")


def test_box_without_keys_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="at least one key"):
        SecretBox([])
