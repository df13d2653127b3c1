"""Structured logs: JSON lines for machines, readable lines on a terminal."""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from app.redaction import HIDDEN, redact

SECRET_NAMES = ("secret", "token", "password", "authorization", "api_key", "signature", "cookie")
EventDict = MutableMapping[str, Any]


def configure_logging(level: str, log_format: str) -> None:
    """Send the logs of structlog and of the standard library to stderr in one format.

    `log_format` is `json`, `console`, or `auto`: console on a terminal, JSON elsewhere.
    """
    as_console = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        hide_secrets,
    ]
    if not as_console:
        shared.append(structlog.processors.format_exc_info)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            _console_renderer() if as_console else structlog.processors.JSONRenderer(),
            _redact_line,
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    handler.setLevel(level.upper())
    root = logging.getLogger()
    root.handlers = [handler]
    # The level asked for is that of this output. A job's own log keeps its informational lines.
    root.setLevel(min(handler.level, logging.INFO))


def plain_formatter() -> logging.Formatter:
    """Write a record as its event and fields, for outputs that keep time and level themselves."""
    return structlog.stdlib.ProcessorFormatter(
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            _drop_origin,
            structlog.dev.ConsoleRenderer(
                colors=False, pad_event_to=0, exception_formatter=structlog.dev.plain_traceback
            ),
            _redact_line,
        ]
    )


def _redact_line(_logger: object, _method: str, line: Any) -> str:
    """Hide secrets in the finished line: its traceback and records of libraries included."""
    return redact(str(line))


def _drop_origin(_logger: object, _method: str, event: EventDict) -> EventDict:
    for name in ("timestamp", "level", "logger"):
        event.pop(name, None)
    return event


def _console_renderer() -> structlog.types.Processor:
    return structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(),
        # The renderer's own tracebacks print local variables, and with them secrets.
        exception_formatter=structlog.dev.plain_traceback,
    )


def hide_secrets(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Replace the values of fields whose names promise a secret."""
    for name in event:
        if any(secret in name.lower() for secret in SECRET_NAMES):
            event[name] = HIDDEN
    return event
