"""The folder that the embedded service keeps everything in."""

import os
from pathlib import Path

from app.domain.errors import Conflict


def make_home(home: Path) -> None:
    """Make the folder, for its user alone, unless it is there.

    Raises
    ------
    Conflict
        When it cannot be made or written to.
    """
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as exc:
        raise Conflict(_refusal(home, exc.strerror or str(exc))) from exc
    if not os.access(home, os.W_OK | os.X_OK):
        raise Conflict(_refusal(home, "it is not writable"))


def _refusal(home: Path, reason: str) -> str:
    return f"{home} cannot be used ({reason}): set DEBIAS_HOME to a folder that you may write to."
