"""The object store: a probe is written, read and deleted."""

import secrets
from collections.abc import Iterator
from datetime import UTC, datetime

from app.domain.errors import DebiasError, StorageUnavailable
from app.security.masking import mask_passwords
from app.services.connections import store_of
from app.services.doctor.findings import Finding, ok, problem, warning
from app.settings import Settings
from app.storage.objects import ObjectMissing, ObjectStore
from app.storage.s3 import PROMPT

_PROBE = b"evenhand doctor"
# S3 refuses requests that are 15 minutes off; links are signed by our clock.
_MOST_SKEW_S = 60.0

# What S3 servers answer, to what it means for the operator.
_REASONS = {
    "NoSuchBucket": ("The bucket does not exist.", "Make it, or correct DEBIAS_STORE_URL."),
    "InvalidAccessKeyId": (
        "The store does not know the access key.",
        "Correct DEBIAS_S3_ACCESS_KEY_ID.",
    ),
    "SignatureDoesNotMatch": (
        "The store does not accept the secret of the access key.",
        "Correct DEBIAS_S3_SECRET_ACCESS_KEY, and check DEBIAS_S3_REGION.",
    ),
    "RequestTimeTooSkewed": (
        "The clocks of this machine and of the store differ too much.",
        "Let this machine follow a time server (NTP).",
    ),
    "AuthorizationHeaderMalformed": (
        "The store does not accept the region of the signature.",
        "Correct DEBIAS_S3_REGION.",
    ),
    "AccessDenied": (
        "The store knows the access key and denies access.",
        "Let it get, put, delete and list objects of this bucket, below this prefix.",
    ),
}


def check_store(settings: Settings) -> Iterator[Finding]:
    """Put, get and delete a probe."""
    url = mask_passwords(settings.resolved_store_url)
    try:
        store = store_of(settings, patience=PROMPT)
    except ValueError as exc:
        yield problem(f"DEBIAS_STORE_URL cannot be used: {exc}.", "Correct it.")
        return
    if settings.store_url is None and not settings.home.exists():
        yield ok(f"{url} is made when the service first runs.")
        return
    key = f"doctor/{secrets.token_hex(16)}"
    try:
        yield from _probe(store, key, url)
    except (StorageUnavailable, ObjectMissing) as exc:
        yield _explain(exc, url)


def _probe(store: ObjectStore, key: str, url: str) -> Iterator[Finding]:
    store.put_bytes(key, _PROBE)
    try:
        info = store.head(key)
        if store.get_range(key, 0, len(_PROBE)) != _PROBE:
            yield problem(f"{url} gives back other bytes than it took.", "Do not use this store.")
            return
    finally:
        store.delete(key)
    if info is not None:
        skew = abs((info.modified_at - datetime.now(UTC)).total_seconds())
        if skew > _MOST_SKEW_S:
            yield warning(
                f"The clocks of this machine and of the store differ by {skew:.0f} s.",
                "Let both follow a time server (NTP), or signed links end too early or too late.",
            )
    yield ok(f"{url} takes, gives and deletes objects.")


def _explain(error: DebiasError, url: str) -> Finding:
    cause: BaseException | None = error
    text = ""
    while cause is not None:
        text += f" {cause}"
        cause = cause.__cause__
    for word, (message, hint) in _REASONS.items():
        if word in text:
            return problem(f"{message} ({url})", hint)
    return problem(
        f"{error.detail} ({url})",
        "Check DEBIAS_STORE_URL and DEBIAS_S3_ENDPOINT_URL, that the store runs, and the rights "
        "of this user.",
    )
