"""Signed download links of this service: for stores that cannot sign URLs themselves."""

import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Self
from urllib.parse import urlencode

from app.domain.errors import Unauthenticated

# Other signatures made with the same secret, now or later, must not pass for a link.
_PURPOSE = b"evenhand download link"
# Unix seconds that datetime can hold.
_EXPIRES = re.compile(r"[0-9]{1,11}")


@dataclass(frozen=True, slots=True)
class LinkSignature:
    """What a download link adds to its path; `expires` is in Unix seconds."""

    expires: int
    key: str
    signature: str

    @property
    def query(self) -> str:
        """The query string."""
        return urlencode({"expires": self.expires, "key": self.key, "signature": self.signature})


@dataclass(frozen=True, slots=True)
class _LinkKey:
    key_id: str
    secret: bytes = field(repr=False)

    @classmethod
    def derive(cls, secret: str) -> Self:
        """Derive the key for links, and a name of it that does not give the secret away."""
        derived = hmac.digest(secret.encode(), _PURPOSE, "sha256")
        return cls(hashlib.sha256(derived).hexdigest()[:8], derived)

    def sign(self, artifact_id: str, expires: int) -> str:
        message = f"{artifact_id}\n{expires}\n{self.key_id}".encode()
        return hmac.new(self.secret, message, hashlib.sha256).hexdigest()


class DownloadSigner:
    """Signs with the first secret and takes links that any of the secrets signed.

    To rotate, put a new secret in front and drop the old one once its last link has expired.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        if not secrets:
            raise ValueError("signing needs at least one secret")
        keys = [_LinkKey.derive(secret) for secret in secrets]
        self._current = keys[0]
        self._by_id = {key.key_id: key for key in reversed(keys)}

    def sign(self, artifact_id: str, *, expires_at: datetime) -> LinkSignature:
        """Sign a link to the artifact that holds until `expires_at`."""
        expires = int(expires_at.timestamp())
        return LinkSignature(
            expires, self._current.key_id, self._current.sign(artifact_id, expires)
        )

    def verify(
        self, artifact_id: str, *, expires: str, key: str, signature: str, now: datetime
    ) -> None:
        """Check the query of a link as it came. Raises Unauthenticated, for whatever reason."""
        known = self._by_id.get(key)
        if known is None or not _EXPIRES.fullmatch(expires) or not signature.isascii():
            raise _refused()
        if not hmac.compare_digest(known.sign(artifact_id, int(expires)), signature):
            raise _refused()
        if now.timestamp() >= int(expires):
            raise _refused()


def _refused() -> Unauthenticated:
    return Unauthenticated("This download link is wrong or has expired. Ask for a new one.")
