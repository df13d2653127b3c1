"""The hub behind mirrors, proxies and private authorities, and every way in which it fails.

Each fault ends in a typed error that says what to do, within the time that a POST has for it.
"""

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import httpx
import pytest

from app.domain.errors import (
    DebiasError,
    ModelGated,
    ModelNotFound,
    Unavailable,
    UriNotAllowed,
)
from app.domain.sources import HubSource
from app.integrations.hub import HubClient
from app.integrations.hub.transport import open_http
from app.services.model_intake import InspectedModel, IntakeSettings, inspect_source
from tests.authority import Authority
from tests.hub_stand_in import GOOD_TOKEN, OTHER_TOKEN, HubStandIn
from tests.model_files import llama_folder
from tests.proxy_stand_in import ProxyStandIn

MODEL = HubSource("org/model")
# Reading the machine's authorities takes longer than most tests here, which speak plain http.
NO_AUTHORITIES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
BUDGET_S = 0.5
# The budget, and what a busy machine adds to it; far from "for ever".
PATIENCE_S = 4.0


@pytest.fixture
def hub() -> Iterator[HubStandIn]:
    with HubStandIn() as stand_in:
        yield stand_in


@contextmanager
def no_proxies() -> Iterator[httpx.Client]:
    with httpx.Client(trust_env=False, verify=NO_AUTHORITIES) as http:
        yield http


def inspect(
    hub: HubStandIn,
    cache: Path,
    *,
    token: str | None = None,
    http: httpx.Client | None = None,
    budget_s: float = 20.0,
    source: HubSource = MODEL,
    orgs: tuple[str, ...] = (),
) -> InspectedModel:
    with (
        no_proxies() as direct,
        HubClient(hub.endpoint, token=token, http=http or direct) as client,
    ):
        settings = IntakeSettings(cache, hub=client, budget_s=budget_s, hub_orgs=orgs)
        return inspect_source(source, settings=settings)


# Mirrors


def test_mirror_below_a_path_prefix(tmp_path: Path) -> None:
    with HubStandIn(prefix="/mirrors/hf") as hub:
        commit = hub.add("org/model", llama_folder())

        model = inspect(hub, tmp_path)

    assert model.pinned["commit"] == commit
    assert {seen.path.startswith("/mirrors/hf/") for seen in hub.seen} == {True}


def test_bare_mirror_without_header_sizes_and_error_codes(hub: HubStandIn, tmp_path: Path) -> None:
    hub.add("org/model", llama_folder())
    hub.faults.without_commit_header = True
    hub.faults.without_sizes = True
    hub.faults.without_error_codes = True

    model = inspect(hub, tmp_path)

    sizes = {file["path"]: file["size"] for file in model.pinned["files"]}
    assert sizes == {name: len(data) for name, data in llama_folder().items()}


def test_mirror_that_compresses_whole_answers_is_understood(
    hub: HubStandIn, tmp_path: Path
) -> None:
    hub.add("org/model", llama_folder())
    hub.faults.compress = True
    hub.faults.ignore_ranges = True

    assert inspect(hub, tmp_path).facts.parameter_count > 0


def test_renamed_repository_is_followed_by_a_relative_redirect(
    hub: HubStandIn, tmp_path: Path
) -> None:
    hub.add("org/model", llama_folder())
    hub.faults.answers = [(307, {"Location": "/api/models/org/model/revision/main?blobs=true"})]

    inspect(hub, tmp_path, token=GOOD_TOKEN)

    assert [seen.headers.get("Authorization") for seen in hub.seen[:2]] == [
        f"Bearer {GOOD_TOKEN}"
    ] * 2


def test_token_does_not_come_back_after_a_detour_over_another_host(tmp_path: Path) -> None:
    with HubStandIn(with_storage=True) as hub:
        hub.add("org/model", llama_folder())
        listing = "/api/models/org/model/revision/main?blobs=true"
        hub.faults.answers = [(302, {"Location": f"{hub.storage_url}/away"})]
        hub.faults.storage_answers = [(302, {"Location": f"{hub.endpoint}{listing}"})]

        inspect(hub, tmp_path, token=GOOD_TOKEN)

        first, away, back = ("Authorization" in seen.headers for seen in hub.seen[:3])
    assert (first, away, back) == (True, False, False)


# Private authorities


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def tls(authority: Authority) -> ssl.SSLContext:
    return authority.server_context()


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the machine's own proxies and authorities out of the way."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.mark.usefixtures("direct")
def test_authority_of_the_setting_is_trusted(
    authority: Authority, tls: ssl.SSLContext, tmp_path: Path
) -> None:
    with HubStandIn(tls=tls) as hub, open_http(authority.bundle) as http:
        hub.add("org/model", llama_folder())

        assert inspect(hub, tmp_path, http=http).pinned["repo_id"] == "org/model"


@pytest.mark.usefixtures("direct")
def test_authority_of_the_environment_is_trusted(
    authority: Authority, tls: ssl.SSLContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.bundle))
    with HubStandIn(tls=tls) as hub, open_http() as http:
        hub.add("org/model", llama_folder())

        assert inspect(hub, tmp_path, http=http).pinned["repo_id"] == "org/model"


@pytest.mark.usefixtures("direct")
def test_unknown_authority_is_named(tls: ssl.SSLContext, tmp_path: Path) -> None:
    with (
        HubStandIn(tls=tls) as hub,
        open_http() as http,
        pytest.raises(Unavailable, match="DEBIAS_HUB_CA_BUNDLE"),
    ):
        inspect(hub, tmp_path, http=http)


@pytest.mark.usefixtures("direct")
def test_certificate_of_another_host_is_refused(authority: Authority, tmp_path: Path) -> None:
    with (
        HubStandIn(tls=authority.server_context("192.0.2.1")) as hub,
        open_http(authority.bundle) as http,
        pytest.raises(Unavailable, match="not for that name"),
    ):
        inspect(hub, tmp_path, http=http)


def test_bundle_without_certificates_is_named(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_text("nothing")

    with pytest.raises(Unavailable, match="PEM"):
        open_http(bundle)


@pytest.mark.usefixtures("direct")
def test_redirect_from_https_to_http_is_not_followed(
    authority: Authority, tls: ssl.SSLContext, tmp_path: Path
) -> None:
    with HubStandIn(tls=tls, with_storage=True) as hub, open_http(authority.bundle) as http:
        hub.add("org/model", llama_folder())

        with pytest.raises(Unavailable, match="unprotected http"):
            inspect(hub, tmp_path, http=http)

        assert {seen.host for seen in hub.seen} == {"hub"}


# Proxies


@pytest.fixture
def proxy(direct: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProxyStandIn]:
    with ProxyStandIn() as running:
        monkeypatch.setenv("HTTPS_PROXY", running.url)
        monkeypatch.setenv("HTTP_PROXY", running.url)
        yield running


def test_https_goes_through_the_proxy(
    authority: Authority, tls: ssl.SSLContext, proxy: ProxyStandIn, tmp_path: Path
) -> None:
    with HubStandIn(tls=tls) as hub, open_http(authority.bundle) as http:
        hub.add("org/model", llama_folder())

        inspect(hub, tmp_path, http=http)

        address = hub.endpoint.removeprefix("https://")
    assert set(proxy.seen) == {f"CONNECT {address}"}


def test_plain_http_goes_through_the_proxy(
    hub: HubStandIn, proxy: ProxyStandIn, tmp_path: Path
) -> None:
    hub.add("org/model", llama_folder())

    with open_http() as http:
        inspect(hub, tmp_path, http=http)

    assert set(proxy.seen) == {f"GET {hub.endpoint.removeprefix('http://')}"}


def test_host_outside_of_the_proxy_is_reached_directly(
    hub: HubStandIn, proxy: ProxyStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("org/model", llama_folder())
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    with open_http() as http:
        inspect(hub, tmp_path, http=http)

    assert proxy.seen == []


@pytest.mark.parametrize("status", [403, 407])
def test_proxy_that_refuses_is_told_from_the_hub(
    tls: ssl.SSLContext, proxy: ProxyStandIn, tmp_path: Path, status: int
) -> None:
    proxy.status = status

    with (
        HubStandIn(tls=tls) as hub,
        open_http() as http,
        pytest.raises(Unavailable, match="HTTPS_PROXY"),
    ):
        inspect(hub, tmp_path, http=http)


# Faults


def _answer(status: int, **headers: str) -> Callable[[HubStandIn], None]:
    def setup(hub: HubStandIn) -> None:
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        hub.faults.answers = [(status, named)] * 50

    return setup


def _fault(**values: object) -> Callable[[HubStandIn], None]:
    def setup(hub: HubStandIn) -> None:
        for name, value in values.items():
            setattr(hub.faults, name, value)

    return setup


def _cut(hub: HubStandIn) -> None:
    hub.faults.cut_after = [20] * 20


def _hold(hub: HubStandIn) -> None:
    hub.faults.hold = threading.Event()


def _drip(*, headers: bool) -> Callable[[HubStandIn], None]:
    def setup(hub: HubStandIn) -> None:
        hub.faults.drip = threading.Event()
        hub.faults.drip_headers = headers

    return setup


FAULTS: dict[str, tuple[Callable[[HubStandIn], None], str]] = {
    "limited": (_answer(429, Retry_After="7"), "limits our requests"),
    "away": (_answer(503), "has a fault"),
    "broken": (_answer(500), "has a fault"),
    "gateway": (_answer(502), "has a fault"),
    "teapot": (_answer(418), "DEBIAS_HUB_ENDPOINT"),
    "method refused": (_answer(405), "DEBIAS_HUB_ENDPOINT"),
    "proxy asks for a password": (_answer(407), "password"),
    "redirect in a circle": (_answer(302, Location="/again"), "again and again"),
    "redirect to nowhere": (_answer(302, Location="ftp://hub/x"), "not http or https"),
    "redirect that is none": (_answer(302, Location="http://[x"), "broke|reached"),
    "login page": (_fault(page=b"<html>Sign in</html>"), "login page"),
    "page instead of JSON": (_fault(listing=b"<html>"), "else than JSON"),
    "deep JSON": (_fault(listing=b"[" * 100_000), "else than JSON"),
    "other JSON": (_fault(listing=b'{"error": 1}'), "else than a listing"),
    "half an answer": (_cut, "broke before"),
    "longer than it says": (_fault(length_off=-20), "else than JSON"),
    "shorter than it says": (_fault(length_off=20), "broke before"),
    "silent": (_hold, "within 0.5 s"),
    "slow body": (_drip(headers=False), "within 0.5 s"),
    "slow headers": (_drip(headers=True), "within 0.5 s"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_of_the_listing_is_named_in_time(hub: HubStandIn, tmp_path: Path, fault: str) -> None:
    hub.add("org/model", llama_folder())
    setup, words = FAULTS[fault]
    setup(hub)
    began = time.monotonic()

    with pytest.raises(Unavailable, match=words) as error:
        inspect(hub, tmp_path, budget_s=BUDGET_S)

    assert time.monotonic() - began < PATIENCE_S
    assert error.value.status == 503
    assert error.value.retry_after_s is not None


FILE_FAULTS = {
    name: FAULTS[name]
    for name in (
        "limited",
        "away",
        "redirect in a circle",
        "login page",
        "half an answer",
        "silent",
        "slow body",
        "slow headers",
    )
} | {
    "parts that are compressed": (_fault(compress=True), "compresses parts"),
    "other bytes": (_fault(length_off=-20), "damaged or in part"),
}


@pytest.mark.parametrize("fault", FILE_FAULTS)
def test_fault_of_a_file_is_named_in_time(hub: HubStandIn, tmp_path: Path, fault: str) -> None:
    commit = hub.add("org/model", llama_folder())
    source = HubSource("org/model", commit)
    inspect(hub, tmp_path, source=source)
    for head in tmp_path.rglob("*.head"):
        head.unlink()  # the listing is kept, so that only files are asked for
    setup, words = FILE_FAULTS[fault]
    setup(hub)
    began = time.monotonic()

    with pytest.raises(Unavailable, match=words) as error:
        inspect(hub, tmp_path, source=source, budget_s=BUDGET_S)

    assert time.monotonic() - began < PATIENCE_S
    assert error.value.retry_after_s is not None


def test_hub_that_redirects_to_another_host_that_wants_the_token_is_named(tmp_path: Path) -> None:
    with HubStandIn(with_storage=True) as hub:
        hub.faults.answers = [(302, {"Location": f"{hub.storage_url}/moved"})]
        hub.faults.storage_answers = [(401, {})]

        with pytest.raises(Unavailable, match="not sent the token"):
            inspect(hub, tmp_path, token=GOOD_TOKEN)


def test_date_of_return_is_understood(hub: HubStandIn, tmp_path: Path) -> None:
    back = datetime.now(UTC) + timedelta(seconds=100)
    hub.faults.answers = [(503, {"Retry-After": format_datetime(back, usegmt=True)})]

    with pytest.raises(Unavailable) as error:
        inspect(hub, tmp_path)

    assert 80 < (error.value.retry_after_s or 0) <= 100


@pytest.mark.parametrize(
    ("header", "wait"),
    [("0", 1), ("-5", 10), ("9" * 40, 3600), ("Tue, 01 Jan 2002 00:00:00 GMT", 1), ("²", 10)],
)
def test_absurd_times_of_return_are_bounded(
    hub: HubStandIn, tmp_path: Path, header: str, wait: int
) -> None:
    hub.faults.answers = [(429, {"Retry-After": header})]

    with pytest.raises(Unavailable) as error:
        inspect(hub, tmp_path)

    assert error.value.retry_after_s == wait


def test_cache_that_cannot_be_written_costs_nothing_else(hub: HubStandIn, tmp_path: Path) -> None:
    hub.add("org/model", llama_folder())
    blocked = tmp_path / "cache"
    blocked.write_text("a file where the folder should be")

    assert inspect(hub, blocked).facts.parameter_count > 0


def test_damaged_listing_of_the_cache_is_read_again(hub: HubStandIn, tmp_path: Path) -> None:
    commit = hub.add("org/model", llama_folder())
    source = HubSource("org/model", commit)
    inspect(hub, tmp_path, source=source)
    (listing,) = tmp_path.rglob(".listing.json")
    listing.write_bytes(b"{")

    assert inspect(hub, tmp_path, source=source).pinned["commit"] == commit


# Who may read what


@dataclass(frozen=True)
class Case:
    """A repository as it is, and who asks for what of it."""

    error: type[DebiasError]
    code: str
    words: str
    token: str | None = None
    exists: bool = True
    gated: str | bool = False
    private: bool = False
    revision: str = "main"
    orgs: tuple[str, ...] = ()
    answer: tuple[int, dict[str, str]] | None = None


CASES = {
    "missing, no token": Case(ModelNotFound, "repo_not_found", "or it is private", exists=False),
    "missing, token": Case(
        ModelNotFound, "repo_not_found", "may not see it", token=GOOD_TOKEN, exists=False
    ),
    # The hub answers both alike, so the message names both.
    "private, no token": Case(ModelNotFound, "repo_not_found", "has no token for it", private=True),
    "private, token of another": Case(
        ModelNotFound, "repo_not_found", "may not see it", token=OTHER_TOKEN, private=True
    ),
    "gated, no token": Case(ModelGated, "model_gated", "set a hub token", gated="manual"),
    "gated, token without access": Case(
        ModelGated, "model_gated", "was not given access", token=OTHER_TOKEN, gated="auto"
    ),
    "token wrong or expired": Case(
        ModelGated, "hub_token_refused", "wrong, expired or revoked", token="hf_old"
    ),
    "token wrong, repository missing": Case(
        ModelGated, "hub_token_refused", "wrong, expired or revoked", token="hf_old", exists=False
    ),
    "forbidden": Case(ModelGated, "hub_forbidden", "forbids reading", answer=(403, {})),
    "revision missing": Case(ModelNotFound, "revision_not_found", "no revision v9", revision="v9"),
    "file missing": Case(
        ModelNotFound,
        "file_not_found",
        "has no file",
        answer=(404, {"X-Error-Code": "EntryNotFound"}),
    ),
    "organisation not allowed": Case(
        UriNotAllowed, "hub_not_allowed", "allows hub models of a, b only", orgs=("a", "b")
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("coded", [True, False], ids=["coded", "bare"])
def test_refusal_is_told_from_all_others(
    hub: HubStandIn, tmp_path: Path, name: str, coded: bool
) -> None:
    case = CASES[name]
    needs_codes = bool(case.gated) or name in ("revision missing", "file missing")
    hub.faults.without_error_codes = not coded
    if case.exists:
        hub.add("org/model", llama_folder(), gated=case.gated, private=case.private)
    if case.answer:
        hub.faults.answers = [case.answer]

    source = HubSource("org/model", case.revision)
    with pytest.raises(DebiasError) as error:
        inspect(hub, tmp_path, token=case.token, source=source, orgs=case.orgs)

    assert error.value.status == 422
    (finding,) = error.value.findings
    if coded or not needs_codes:
        assert isinstance(error.value, case.error)
        assert finding.code == case.code
        assert case.words in error.value.detail
