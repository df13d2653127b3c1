"""The secret of an embedded service that was given none: made once, and kept in its home."""

import os
import secrets
from pathlib import Path

from pydantic import SecretStr

from app.settings import Settings

FILE_NAME = "secret.key"
# As many characters as a service that listens to the network has to be given.
MIN_LENGTH = 32
RANDOM_BYTES = 48


def keep_secret_key(home: Path) -> SecretStr:
    """Read the key below `home`, or make one that only this user can read.

    Links signed before a restart stay valid so. The caller holds the lock of the home.
    """
    kept = _kept(home)
    if kept is not None:
        return SecretStr(kept)
    made = secrets.token_urlsafe(RANDOM_BYTES)
    _write_privately(home / FILE_NAME, made)
    return SecretStr(made)


def find_secret_keys(settings: Settings) -> tuple[str, ...]:
    """List the keys that are set, else the one that an embedded service keeps in its home."""
    if settings.secret_keys:
        return settings.secret_keys
    kept = _kept(settings.home)
    return (kept,) if kept is not None else ()


def _kept(home: Path) -> str | None:
    path = home / FILE_NAME
    kept = path.read_text().strip() if path.exists() else ""
    return kept if len(kept) >= MIN_LENGTH else None


def _write_privately(path: Path, text: str) -> None:
    """Write a file that is never seen half written, nor by others."""
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{text}\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
