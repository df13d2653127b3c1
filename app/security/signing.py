"""Signed download links of this service: for stores that cannot sign URLs themselves."""

import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
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
    """What a download link adds to its path; `expires` is in Unix seconds.

    `issuer` is the API key that made the link, empty where none was needed; `key` names the secret
    that signed it.
    """

    expires: int
    issuer: str
    key: str
    signature: str

    @property
    def query(self) -> str:
        """The query string."""
        return urlencode(asdict(self))


@dataclass(frozen=True, slots=True)
class _LinkKey:
    key_id: str
    secret: bytes = field(repr=False)

    @classmethod
    def derive(cls, secret: str) -> Self:
        """Derive the key for links, and a name of it that does not give the secret away."""
        derived = hmac.digest(secret.encode(), _PURPOSE, "sha256")
        return cls(hashlib.sha256(derived).hexdigest()[:8], derived)

    def sign(self, artifact_id: str, expires: int, issuer: str) -> str:
        message = f"{artifact_id}\n{expires}\n{issuer}\n{self.key_id}".encode()
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

    def sign(self, artifact_id: str, *, expires_at: datetime, issuer: str) -> LinkSignature:
        """Sign a link to the artifact that holds until `expires_at`."""
        expires = int(expires_at.timestamp())
        signature = self._current.sign(artifact_id, expires, issuer)
        return LinkSignature(expires, issuer, self._current.key_id, signature)

    def verify(
        self,
        artifact_id: str,
        *,
        expires: str,
        issuer: str,
        key: str,
        signature: str,
        now: datetime,
    ) -> None:
        """Check the query of a link as it came. Raises Unauthenticated, for whatever reason.

        Whether the issuer may still read the artifact is for the caller to check.
        """
        known = self._by_id.get(key)
        if known is None or not _EXPIRES.fullmatch(expires) or not signature.isascii():
            raise link_refused()
        expected = known.sign(artifact_id, int(expires), issuer)
        if not hmac.compare_digest(expected, signature):
            raise link_refused()
        if now.timestamp() >= int(expires):
            raise link_refused()


def link_refused() -> Unauthenticated:
    """Say that a link is no good, and not why."""
    return Unauthenticated(
        "This download link is wrong, has expired, or was made with an API key that no longer "
        "works. Ask for a new one."
    )
