"""Which secrets a project can keep here."""

from enum import StrEnum


class SecretName(StrEnum):
    """One secret. What is not in this list nobody would read, so it is not taken."""

    HUB_TOKEN = "hub_token"  # noqa: S105 - a name
    """Token of the model hub, for the project's gated and private models."""
