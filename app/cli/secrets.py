"""`debias secrets`: the stored secrets of projects, and the keys they are encrypted with."""

from collections.abc import Iterator
from contextlib import contextmanager

from app.db.schema import require_current
from app.db.session import Database
from app.domain.errors import Conflict
from app.security.secrets import SecretBox
from app.services.secret_rotation import count_secrets, rotate_secrets
from app.services.secrets import box_of
from app.settings import Settings


def print_rotation(settings: Settings) -> int:
    """Encrypt everything under the first key; end with 1 where something could not be read."""
    with _opened(settings) as (database, box):
        print(f"Encrypted anew under the first key: {rotate_secrets(database, box)}.")
    return print_check(settings)


def print_check(settings: Settings) -> int:
    """Say which keys the stored secrets need; end with 1 where some cannot be read."""
    with _opened(settings) as (database, box):
        count = count_secrets(database, box)
    print(f"Under the first key: {count.current}. Under a former key: {count.former}.")
    if count.former:
        print("Run `debias secrets rotate` before you drop a former key.")
    if count.unreadable:
        print(
            f"Under no key of DEBIAS_SECRET_KEY: {count.unreadable}. Put the former key behind the "
            "first one, or have the projects set them again."
        )
    return 1 if count.unreadable else 0


@contextmanager
def _opened(settings: Settings) -> Iterator[tuple[Database, SecretBox]]:
    box = box_of(settings)
    if box is None:
        raise Conflict("There is no secret key: set DEBIAS_SECRET_KEY to the one the API uses.")
    database = Database(settings.resolved_database_url, pooled=False)
    try:
        require_current(database)
        yield database, box
    finally:
        database.dispose()
