"""The model hub, and what stands between it and this service."""

import os
from collections.abc import Iterator

from app.domain.errors import DebiasError, ModelGated, ModelNotFound, Unavailable
from app.integrations.hub import Deadline, HubClient
from app.services.connections import hub_of
from app.services.doctor.findings import Finding, ok, problem, warning
from app.settings import Settings

# Small, public, and on every mirror that has anything.
PROBE_REPO = "openai-community/gpt2"
_BUDGET_S = 10.0
_OWN = {"hub_endpoint", "hub_token", "hub_ca_bundle"}
_ELSEWHERE = (
    "Jobs on models of the hub fail with it; those on `path`, `demo` and own models do not."
)


def check_hub(settings: Settings) -> Iterator[Finding]:
    """List a well-known repository, and ask whether the token is good."""
    endpoint = str(settings.hub_endpoint).rstrip("/")
    if settings.hub_token and settings.hub_endpoint.scheme == "http":
        yield warning(
            f"The hub token is sent to {endpoint} without encryption.",
            "Use an https address in DEBIAS_HUB_ENDPOINT, or no token.",
        )
    yield from _proxies()
    with hub_of(settings) as hub:
        yield from _listing(hub, endpoint, relied_on=bool(_OWN & settings.model_fields_set))
        if settings.hub_token:
            yield from _token(hub)


def _proxies() -> Iterator[Finding]:
    names = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")
    found = [name for name in names if os.environ.get(name) or os.environ.get(name.lower())]
    if found:
        yield ok(f"Requests go through the proxy of {', '.join(found)}, but for NO_PROXY.")


def _listing(hub: HubClient, endpoint: str, *, relied_on: bool) -> Iterator[Finding]:
    try:
        listing = hub.describe(PROBE_REPO, "main", deadline=Deadline(_BUDGET_S))
    except ModelNotFound:
        yield ok(f"{endpoint} answers (it has no {PROBE_REPO}).")
        return
    except ModelGated as exc:
        yield problem(exc.detail, "Set a token that works, or none, in DEBIAS_HUB_TOKEN.")
        return
    except Unavailable as exc:
        # Machines without a way out are common, and need no hub as long as nobody set one up.
        make = problem if relied_on else warning
        yield make(f"{endpoint}: {exc.detail}", _ELSEWHERE)
        return
    yield ok(f"{endpoint} answers.")
    if any(file.size is None for file in listing.files):
        yield warning(
            "This mirror lists no sizes: each new model costs one more request per file.",
            "Nothing has to be done; a mirror that answers ?blobs=true is faster.",
        )


def _token(hub: HubClient) -> Iterator[Finding]:
    try:
        known = hub.knows_token(deadline=Deadline(_BUDGET_S))
    except DebiasError as exc:
        yield warning(
            f"Whether the token is good is unknown: {exc.detail}", "Try a gated model of yours."
        )
        return
    if known:
        yield ok("The hub knows the token.")
    else:
        yield problem(
            "The hub does not know the token: it is wrong, expired or revoked.",
            "Make a new one on the hub's page of access tokens, or unset DEBIAS_HUB_TOKEN.",
        )
