"""Signed download links."""

from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import Unauthenticated
from app.security.signing import DownloadSigner, LinkSignature

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
ISSUER = "key_01k9x4m3b7e0000000000000aa"
ARTIFACT = "art_01k9x4m3b7e0000000000000aa"
SIGNER = DownloadSigner(["current secret", "old secret"])


def signed(signer: DownloadSigner = SIGNER, *, seconds: int = 60) -> LinkSignature:
    return signer.sign(ARTIFACT, expires_at=NOW + timedelta(seconds=seconds), issuer=ISSUER)


def check(
    link: LinkSignature, changed: dict[str, str] | None = None, *, signer: DownloadSigner = SIGNER
) -> None:
    query = {
        name: values[0] for name, values in parse_qs(link.query, keep_blank_values=True).items()
    }
    query |= changed or {}
    artifact = query.pop("artifact", ARTIFACT)
    signer.verify(artifact, **query, now=NOW)


def test_a_fresh_link_is_taken() -> None:
    check(signed(seconds=1))


@pytest.mark.parametrize("seconds", [0, -1, -86400])
def test_a_link_ends_at_its_expiry(seconds: int) -> None:
    with pytest.raises(Unauthenticated):
        check(signed(seconds=seconds))


@pytest.mark.parametrize(
    "changed",
    [
        {"artifact": "art_01k9x4m3b7e0000000000000ab"},
        {"expires": "99999999999"},
        {"expires": "9" * 5000},
        {"expires": "-1"},
        {"expires": "1e9"},
        {"expires": ""},
        {"issuer": ISSUER.replace("aa", "ab")},
        {"issuer": ""},
        {"key": "00000000"},
        {"key": ""},
        {"signature": ""},
        {"signature": "0" * 64},
        {"signature": "é" * 64},
    ],
)
def test_a_changed_link_is_refused(changed: dict[str, str]) -> None:
    with pytest.raises(Unauthenticated):
        check(signed(), changed)


def test_every_refusal_reads_the_same() -> None:
    details = set()
    for link, changed in [
        (signed(seconds=0), {}),
        (signed(), {"key": "x"}),
        (signed(), {"signature": "x"}),
    ]:
        with pytest.raises(Unauthenticated) as caught:
            check(link, changed)
        details.add(caught.value.detail)

    assert len(details) == 1


def test_a_link_outlives_the_rotation_of_its_secret() -> None:
    before = DownloadSigner(["old secret"])

    check(signed(before))


def test_a_dropped_secret_ends_its_links() -> None:
    link = signed(DownloadSigner(["old secret"]))

    with pytest.raises(Unauthenticated):
        check(link, signer=DownloadSigner(["current secret"]))


def test_new_links_use_the_first_secret() -> None:
    check(signed(), signer=DownloadSigner(["current secret"]))


def test_another_secret_cannot_reuse_the_name_of_a_key() -> None:
    forged = signed(DownloadSigner(["guess"]))

    with pytest.raises(Unauthenticated):
        check(forged, {"key": signed().key})


def test_signing_needs_a_secret() -> None:
    with pytest.raises(ValueError, match="secret"):
        DownloadSigner([])


@given(position=st.integers(0, 63), digit=st.sampled_from("0123456789abcdef"))
def test_any_other_digit_in_the_signature_is_refused(position: int, digit: str) -> None:
    link = signed()
    other = link.signature[:position] + digit + link.signature[position + 1 :]

    if other == link.signature:
        check(link, {"signature": other})
    else:
        with pytest.raises(Unauthenticated):
            check(link, {"signature": other})
