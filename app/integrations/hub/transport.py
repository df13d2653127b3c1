"""How requests travel to the model hub: trusted authorities, proxies, redirects."""

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path

import httpx

from app.domain.errors import Unavailable
from app.integrations.hub.errors import circular, downgraded, unreachable, unusable_bundle

# The hub needs one redirect for a weight file and one for a renamed repository.
MAX_REDIRECTS = 5

TimeoutOf = Callable[[], httpx.Timeout]


def open_http(ca_bundle: Path | None = None) -> httpx.Client:
    """Make an HTTP client that trusts the authorities of `ca_bundle` besides the usual ones.

    The usual ones are those of certifi, or of `SSL_CERT_FILE` and `SSL_CERT_DIR`; `HTTPS_PROXY`,
    `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` are followed. Raises `Unavailable` where the bundle
    cannot be read.
    """
    try:
        # Added to, not replaced: a mirror with a private authority may redirect to a public host.
        context = httpx.create_ssl_context()
        if ca_bundle is not None:
            context.load_verify_locations(cafile=ca_bundle)
    except (OSError, ssl.SSLError) as exc:
        raise unusable_bundle(ca_bundle) from exc
    # No cookies: what a hub gives to one token must not go along with another one's request.
    cookies = CookieJar(DefaultCookiePolicy(allowed_domains=()))
    return httpx.Client(verify=context, cookies=cookies)


@contextmanager
def open_answer(
    http: httpx.Client, request: httpx.Request, *, timeout_of: TimeoutOf
) -> Iterator[httpx.Response]:
    """Send a GET and open the answer behind its redirects.

    The token goes to the origin it was meant for only: httpx takes it off a redirect to any
    other, and a later redirect back does not give it again. `timeout_of` is asked before each
    request, so that a chain of slow redirects shares one budget.
    """
    for _ in range(MAX_REDIRECTS + 1):
        request.extensions["timeout"] = timeout_of().as_dict()
        response = http.send(request, stream=True)
        try:
            if response.next_request is None:
                yield response
                return
            _check_redirect(response.url, response.next_request.url)
            request = response.next_request
        finally:
            response.close()
    raise circular(request.url.host)


def _check_redirect(source: httpx.URL, target: httpx.URL) -> None:
    # Whoever listens on the way could put other bytes in place of what the hub meant.
    if source.scheme == "https" and target.scheme != "https":
        raise downgraded(target.host)


def explain(error: httpx.RequestError) -> Unavailable:
    """Say why no answer came, in words for whoever runs the service."""
    if isinstance(error, httpx.ProxyError):
        return unreachable(
            "the proxy refuses to connect to it. The operator should check HTTPS_PROXY and NO_PROXY"
        )
    if _is_untrusted(error):
        return unreachable(
            "its certificate is signed by an authority that this service does not know, or is not "
            "for that name. The operator should set DEBIAS_HUB_CA_BUNDLE to the authority's "
            "certificate"
        )
    if isinstance(error, httpx.DecodingError):
        return unreachable("it sent compressed data that is damaged")
    if isinstance(error, httpx.UnsupportedProtocol):
        return unreachable("it redirects to an address that is not http or https")
    if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
        return unreachable("the connection broke before all of the answer was there")
    return unreachable()


def _is_untrusted(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False
