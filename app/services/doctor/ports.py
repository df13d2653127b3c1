"""The API, if it runs: whether what listens at its address is ours, and ready."""

from collections.abc import Iterator

import httpx

from app.services.doctor.findings import Finding, ok, problem, warning
from app.settings import Settings

DEFAULT_URL = "http://127.0.0.1:8000"
_TIMEOUT_S = 5.0


def check_api(settings: Settings) -> Iterator[Finding]:
    """Ask the API whether it lives and is ready."""
    url = str(settings.public_url or DEFAULT_URL).rstrip("/")
    try:
        # Not through a proxy: it is this deployment's own address.
        with httpx.Client(timeout=_TIMEOUT_S, trust_env=False) as http:
            alive, ready = http.get(f"{url}/livez"), http.get(f"{url}/readyz")
    except httpx.ConnectError:
        if settings.public_url is None:
            yield ok(
                f"Nothing listens on {url}: the port is free for `debias serve`. Does it run on "
                "another one? Name that with --port."
            )
        else:
            yield problem(
                f"Nothing answers at {url}.",
                "Start `debias api`, and check the proxy in front of it and DEBIAS_PUBLIC_URL.",
            )
        return
    except httpx.HTTPError as exc:
        yield problem(
            f"{url} does not answer as HTTP: {type(exc).__name__}.",
            "Another program may use the port: choose one with --port.",
        )
        return
    yield _judge(url, alive, ready)


def _judge(url: str, alive: httpx.Response, ready: httpx.Response) -> Finding:
    if not _is_ours(alive):
        return warning(
            f"Another program answers at {url}.",
            "Choose another port: `debias serve --port 8001`.",
        )
    if ready.status_code != 200:
        return problem(
            f"The API at {url} runs, but is not ready: {ready.text[:300]}",
            "The lines above say which part is down.",
        )
    if "degraded" in ready.text:
        return warning(
            f"The API at {url} is degraded: {ready.text[:300]}",
            "The lines above say which part is down.",
        )
    return ok(f"The API at {url} is ready.")


def _is_ours(answer: httpx.Response) -> bool:
    return answer.status_code == 200 and "x-request-id" in answer.headers
