"""Secrets at rest: encrypted under the service's secret key, which is never in the database."""

import base64
import hmac
import json
from collections.abc import Sequence
from uuid import UUID

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from app.domain.canonical import canonical_json
from app.domain.errors import SecretUnreadable

# What the same secret key signs, now or later, is made with another key than this.
_PURPOSE = b"evenhand secrets at rest"


class SecretBox:
    """Encrypts with the first key, and opens what any of the keys encrypted.

    To rotate, put a new key in front, run `debias secrets rotate`, then drop the old one.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        if not keys:
            raise ValueError("encryption needs at least one key")
        self._fernets = [Fernet(_derive(key)) for key in keys]
        self._all = MultiFernet(self._fernets)

    def seal(self, value: str, *, project_id: UUID, name: str) -> str:
        """Encrypt a secret of a project."""
        # The owner is inside: a row that was copied into another project does not open there.
        content = canonical_json({"project": project_id.hex, "name": name, "value": value})
        return self._all.encrypt(content).decode("ascii")

    def open(self, sealed: str, *, project_id: UUID, name: str) -> str:
        """Decrypt a secret of a project.

        Raises
        ------
        SecretUnreadable
            When no key opens it, or it belongs to another project or name.
        """
        try:
            content = json.loads(self._all.decrypt(sealed.encode()))
        except InvalidToken:
            raise _unreadable(name) from None
        if (content["project"], content["name"]) != (project_id.hex, name):
            raise _unreadable(name)
        value: str = content["value"]
        return value

    def is_current(self, sealed: str) -> bool:
        """Tell whether the first key encrypted this."""
        try:
            self._fernets[0].decrypt(sealed.encode())
        except InvalidToken:
            return False
        return True

    def reseal(self, sealed: str, *, name: str) -> str:
        """Encrypt under the first key what any of the keys encrypted.

        Raises
        ------
        SecretUnreadable
            When no key opens it.
        """
        try:
            return self._all.rotate(sealed.encode()).decode("ascii")
        except InvalidToken:
            raise _unreadable(name) from None


def _derive(key: str) -> bytes:
    return base64.urlsafe_b64encode(hmac.digest(key.encode(), _PURPOSE, "sha256"))


def _unreadable(name: str) -> SecretUnreadable:
    return SecretUnreadable(
        f"The project's {name} cannot be decrypted: the service's secret key was changed. Set it "
        f"again with PUT /v1/secrets/{name}, or have the operator put the former key behind the "
        "new one in DEBIAS_SECRET_KEY."
    )
