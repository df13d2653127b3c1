"""Settings that are misspelt, and a secret key that is weak."""

import difflib
import math
import os
from collections import Counter
from collections.abc import Iterator

from app.security.masking import mask_passwords
from app.services.doctor.findings import Finding, ok, problem, warning
from app.services.secret_key import FILE_NAME, MIN_LENGTH
from app.settings import Settings

PREFIX = "DEBIAS_"
# Read by tests and by the command line, not by the settings.
_OTHER_VARIABLES = frozenset({"DEBIAS_FAULT", "DEBIAS_SECRETS_DIR"})
# 32 characters of hexadecimal digits have 128 bits; words and repeated letters have far fewer.
_MIN_BITS = 90


def check_settings(settings: Settings) -> Iterator[Finding]:
    """Say which kind of deployment is set, and which variables are none of ours."""
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    given = {name for name in os.environ if name.startswith(PREFIX)}
    for name in sorted(given - known - _OTHER_VARIABLES):
        if name.startswith("DEBIAS_TEST_"):
            continue
        close = difflib.get_close_matches(name, known, n=1)
        meant = f"Did you mean {close[0]}?" if close else "Remove it, or see docs/settings.md."
        yield warning(f"{name} is set, but there is no such setting.", meant)
    if settings.auth_mode == "disabled":
        yield warning(
            "Nobody is asked for a key (DEBIAS_AUTH_MODE=disabled).",
            "Set DEBIAS_AUTH_MODE=keys unless only you can reach this machine.",
        )
    database = mask_passwords(settings.resolved_database_url)
    kind = "embedded" if settings.broker_url is None else "deployed"
    yield ok(f"{kind}; database {database}; home {settings.home}")


def check_secret(settings: Settings) -> Iterator[Finding]:
    """Judge the key that signs links and encrypts secrets."""
    keys = settings.secret_keys
    if not keys:
        yield _without_key(settings)
        return
    for number, key in enumerate(keys, start=1):
        weak = _weakness(key)
        which = "The secret key" if len(keys) == 1 else f"Secret key {number} of {len(keys)}"
        if weak:
            yield problem(
                f"{which} {weak}.",
                "Make one with: python -c 'import secrets; print(secrets.token_urlsafe(48))'",
            )
        else:
            yield ok(f"{which} is set and long enough.")


def _without_key(settings: Settings) -> Finding:
    if settings.broker_url is None:
        path = settings.home / FILE_NAME
        kept = "is kept in" if path.exists() else "will be made in"
        return ok(f"None is set: the embedded service's own {kept} {path}.")
    return warning(
        "No secret key is set: download links end with each API process.",
        "Set DEBIAS_SECRET_KEY to the same 32 or more random characters for API and workers.",
    )


def _weakness(key: str) -> str | None:
    if len(key) < MIN_LENGTH:
        return f"has {len(key)} characters, fewer than {MIN_LENGTH}"
    bits = -sum(n * math.log2(n / len(key)) for n in Counter(key).values())
    return "is easy to guess: it repeats few characters" if bits < _MIN_BITS else None
