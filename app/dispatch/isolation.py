"""Keep what goes wrong with one of many from those behind it."""

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from app.db.session import OUTAGE_ERRORS
from app.domain.errors import DebiasError

log = structlog.get_logger()


@contextmanager
def isolated(event: str, **about: str) -> Iterator[list[Exception]]:
    """Log an error of the block as `event` and go on after it.

    The list that is given holds the error then. An outage of the database concerns all alike,
    and is raised.
    """
    errors: list[Exception] = []
    try:
        yield errors
    except OUTAGE_ERRORS:
        raise
    except Exception as exc:
        # Only a defect is worth a traceback.
        known = isinstance(exc, DebiasError)
        log.exception(event, error=str(exc), exc_info=not known, **about)
        errors.append(exc)
