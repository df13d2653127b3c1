"""Passwords in URLs are not shown, everything else is."""

import pytest

from app.security.masking import MASK, mask_passwords


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("postgresql+psycopg://me:pw@db/x", f"postgresql+psycopg://me:{MASK}@db/x"),
        ("redis://:p/w:1@cache:6379/0", f"redis://:{MASK}@cache:6379/0"),
        ("sentinel://:pw@a;sentinel://:pw@b", f"sentinel://:{MASK}@a;sentinel://:{MASK}@b"),
        (
            "postgresql://db/x?user=me&password=pw&a=1",
            f"postgresql://db/x?user=me&password={MASK}&a=1",
        ),
        ("postgresql://db/x?sslpassword=pw", f"postgresql://db/x?sslpassword={MASK}"),
    ],
)
def test_password_is_hidden(given: str, shown: str) -> None:
    assert mask_passwords(given) == shown


@pytest.mark.parametrize(
    "text",
    ["sqlite:////data/debias.db", "https://hub.example:8443/a", "s3://bucket/prefix", "60"],
)
def test_what_holds_no_password_is_left_alone(text: str) -> None:
    assert mask_passwords(text) == text
