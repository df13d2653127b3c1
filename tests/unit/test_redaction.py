"""No log line shows a secret: neither one that is known, nor what looks like one."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from app import redaction
from app.logging import configure_logging, plain_formatter
from app.redaction import HIDDEN, MAX_VALUES, hide_value, redact

KEY = "dbk_abcdEFGH_" + "k" * 43
TOKEN = "token-of-a-test-" + "t" * 12
QUOTED = 'pass"word\\with-quotes'


@pytest.fixture(autouse=True)
def _own_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_values", redaction._Values())


@pytest.fixture(params=["json", "console"])
def output(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """What goes to stderr, in each of the formats."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    configure_logging("debug", request.param)
    stream = io.StringIO()
    handler = root.handlers[0]
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(stream)
    yield stream
    root.handlers, root.level = handlers, level


@pytest.mark.parametrize(
    ("text", "hidden", "kept"),
    [
        (f"key {KEY} used", "k" * 43, "dbk_abcdEFGH_"),
        (f"Authorization: Bearer {KEY}", "k" * 43, "Bearer"),
        ("Authorization: Bearer opaque-token-1", "opaque-token-1", "Bearer"),
        ("hub said hf_" + "Z" * 34, "Z" * 34, "hub said"),
        ("GET /downloads/art_1?expires=1&key=ab&signature=0f0f0f", "0f0f0f", "expires=1"),
        ('{"url": "/d?signature=0f0f0f&expires=1"}', "0f0f0f", '&expires=1"}'),
        ("s3://b/k?X-Amz-Date=1&X-Amz-Signature=0f0f0f", "0f0f0f", "X-Amz-Date=1"),
        ("postgresql://me:hunter22@db/x", "hunter22", "me:"),
        ("redis://:hunter22@host/0", "hunter22", "@host/0"),
    ],
)
def test_what_looks_like_a_secret_is_hidden(text: str, hidden: str, kept: str) -> None:
    assert hidden not in redact(text)
    assert kept in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "job_01m8pkgx24eanb1smxfmhm5ask of key_01m8pkgataengs1jqe1zer5mzd",
        '{"event": "request_answered", "route": "/v1/jobs/{job_id}", "status": 200}',
        "the signature of a function, a bearer of news, dbk_short_key",
        "hf_config and hf_token are names",
        "",
    ],
)
def test_ordinary_lines_stay_as_they_are(text: str) -> None:
    assert redact(text) == text


def test_registered_values_are_hidden_anywhere() -> None:
    hide_value(TOKEN)

    assert redact(f"x{TOKEN}y") == f"x{HIDDEN}y"


def test_registered_values_are_hidden_inside_json_too() -> None:
    hide_value(QUOTED)

    assert QUOTED[5:] not in redact(json.dumps({"a": QUOTED}))
    assert json.loads(redact(json.dumps({"a": QUOTED}))) == {"a": HIDDEN}


def test_short_values_are_not_looked_for() -> None:
    hide_value("abc")

    assert redact("abcdef") == "abcdef"


def test_oldest_values_are_forgotten() -> None:
    for number in range(MAX_VALUES + 1):
        hide_value(f"value-number-{number:04}")

    assert redact("value-number-0000") == "value-number-0000"
    assert redact("value-number-0001") == HIDDEN


@pytest.mark.parametrize(
    "name", ["token", "hub_token", "Authorization", "secret_key", "signature", "set_cookie"]
)
def test_fields_are_hidden_by_name(output: io.StringIO, name: str) -> None:
    structlog.get_logger("test").info("event", **{name: "anything", "other": "shown"})

    assert "anything" not in output.getvalue()
    assert "shown" in output.getvalue()


def test_messages_fields_and_tracebacks_are_hidden_by_value(output: io.StringIO) -> None:
    hide_value(TOKEN)
    structlog.get_logger("test").info(f"said {TOKEN}", field={"deep": [TOKEN, KEY]})
    logging.getLogger("library").warning("library said %s and %s", TOKEN, KEY)

    def fail() -> None:
        raise RuntimeError(f"failed with {TOKEN}") from ValueError(KEY)

    try:
        fail()
    except RuntimeError:
        structlog.get_logger("test").exception("failed")
        logging.getLogger("library").exception("failed as well")

    lines = output.getvalue()
    assert lines.count("RuntimeError") >= 2
    assert TOKEN not in lines
    assert "k" * 43 not in lines


def test_log_of_a_job_is_redacted_like_that_of_the_service() -> None:
    hide_value(TOKEN)
    record = logging.LogRecord("engine", logging.INFO, "f", 1, f"got {TOKEN}", (), None)

    assert TOKEN not in plain_formatter().format(record)
