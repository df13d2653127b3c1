"""Secrets that are mounted as files, each named like its variable."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from app.settings import Settings

TOKEN, KEY = "token-of-a-file", "key-of-a-file-with-32-characters-or-more"


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "mounted"
    folder.mkdir()
    (folder / "DEBIAS_HUB_TOKEN").write_text(f"{TOKEN}\n")
    (folder / "debias_secret_key").write_text(f"{KEY},former\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DEBIAS_SECRETS_DIR", str(folder))
    for name in ("DEBIAS_HUB_TOKEN", "DEBIAS_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)
    return folder


def test_files_of_the_directory_are_read(mounted: Path) -> None:
    settings = Settings()

    assert settings.secrets_dir == mounted
    assert settings.hub_token is not None
    assert settings.hub_token.get_secret_value() == TOKEN
    assert settings.secret_keys == (KEY, "former")
    assert {TOKEN, KEY, "former"} <= set(settings.secret_values)
    assert TOKEN not in repr(settings)


def test_environment_wins(mounted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEBIAS_HUB_TOKEN", "token-of-the-environment")

    token = Settings().hub_token

    assert mounted.exists()
    assert token is not None
    assert token.get_secret_value() == "token-of-the-environment"


def test_directory_can_be_named_in_the_env_file(
    mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DEBIAS_SECRETS_DIR")
    Path(".env").write_text(f"DEBIAS_SECRETS_DIR={mounted}\n")

    assert Settings().secret_keys == (KEY, "former")


def test_directory_that_is_not_there_is_an_error(
    mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEBIAS_SECRETS_DIR", str(mounted / "none"))

    with pytest.raises(ValidationError, match="secrets_dir"):
        Settings()
