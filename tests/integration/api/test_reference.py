"""The API reference works without any other host, and tells none of its readers."""

import re
from urllib.parse import urljoin

from tests.integration.api.callers import Caller

LOADED = re.compile(r"""<(?:script|link|img)[^>]*?(?:src|href)="([^"]+)\"""")


def test_page_loads_from_this_service_only(caller: Caller) -> None:
    client = caller.app.client
    page = client.get("/docs")

    paths = [path for path in LOADED.findall(page.text) if not path.startswith("data:")]
    answers = [client.get(urljoin("/docs", path)) for path in paths]

    assert len(paths) == 3
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert "://" not in page.text


def test_stylesheet_loads_nothing_further(caller: Caller) -> None:
    sheet = caller.app.client.get("/docs/assets/swagger-ui.css").text

    assert "@import" not in sheet
    assert all(url.startswith("data:") for url in re.findall(r"url\([\"']?([^)\"']+)", sheet))


def test_browser_is_told_to_ask_no_other_host(caller: Caller) -> None:
    page = caller.app.client.get("/docs")

    policy = dict(
        rule.split(" ", 1) for rule in page.headers["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert policy["connect-src"] == "'self'"
    assert "http" not in page.headers["content-security-policy"]


def test_reference_sends_no_document_to_a_validator(caller: Caller) -> None:
    assert "validatorUrl: null" in caller.app.client.get("/docs/start.js").text


def test_reference_answers_head(caller: Caller) -> None:
    for path in ("/docs", "/docs/start.js", "/docs/assets/swagger-ui.css"):
        assert caller.app.client.head(path).status_code == 200
