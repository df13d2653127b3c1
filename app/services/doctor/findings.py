"""What a check of the deployment finds."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How a finding is meant: only problems keep the service from working."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what is, and where that is not well, what to do."""

    level: Level
    message: str
    hint: str | None = None


def ok(message: str) -> Finding:
    """Say what is well."""
    return Finding(Level.OK, message)


def warning(message: str, hint: str) -> Finding:
    """Say what works, but not as it should."""
    return Finding(Level.WARNING, message, hint)


def problem(message: str, hint: str) -> Finding:
    """Say what does not work."""
    return Finding(Level.PROBLEM, message, hint)
