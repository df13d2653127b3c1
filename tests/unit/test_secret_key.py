"""The generated secret outlives a restart and is nobody else's to read."""

from pathlib import Path

import pytest

from app.services.secret_key import FILE_NAME, MIN_LENGTH, keep_secret_key
from app.settings import Settings


def test_key_is_the_same_after_a_restart(tmp_path: Path) -> None:
    first = keep_secret_key(tmp_path)

    assert keep_secret_key(tmp_path) == first
    assert len(first.get_secret_value()) >= MIN_LENGTH


def test_homes_have_different_keys(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()

    assert keep_secret_key(tmp_path / "a") != keep_secret_key(tmp_path / "b")


def test_only_the_owner_can_read_the_file(tmp_path: Path) -> None:
    keep_secret_key(tmp_path)

    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_damaged_key_is_replaced(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("short\n")

    key = keep_secret_key(tmp_path)

    assert len(key.get_secret_value()) >= MIN_LENGTH
    assert keep_secret_key(tmp_path) == key


@pytest.mark.parametrize("given", ["", " ", ",", None])
def test_blank_setting_is_no_key(given: str | None) -> None:
    assert Settings(_env_file=None, secret_key=given).secret_key is None
