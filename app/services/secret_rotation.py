"""Bring all stored secrets under the current secret key, and tell which are under which."""

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.db.repositories.secrets import reseal_secret, secrets_of_all
from app.db.session import Database
from app.db.tables import ProjectSecret
from app.domain.errors import SecretUnreadable
from app.security.secrets import SecretBox

PAGE = 100


@dataclass(slots=True)
class SecretCount:
    """How many secrets are under the current key, under a former one, and under none we have."""

    current: int = 0
    former: int = 0
    unreadable: int = 0


def count_secrets(database: Database, box: SecretBox) -> SecretCount:
    """Try to open every secret of every project."""
    count = SecretCount()
    for _, page in _pages(database, write=False):
        for row in page:
            _count(count, box, row)
    return count


def rotate_secrets(database: Database, box: SecretBox) -> int:
    """Encrypt under the current key what is under a former one; tell how many that were.

    Secrets that no key opens stay as they are: the key they need may come back. Repeating it
    does nothing.
    """
    done = 0
    for session, page in _pages(database, write=True):
        for row in page:
            count = SecretCount()
            _count(count, box, row)
            if count.former:
                done += reseal_secret(session, row, box.reseal(row.ciphertext, name=row.name))
    return done


def _count(count: SecretCount, box: SecretBox, row: ProjectSecret) -> None:
    try:
        box.open(row.ciphertext, project_id=row.project_id, name=row.name)
    except SecretUnreadable:
        count.unreadable += 1
        return
    if box.is_current(row.ciphertext):
        count.current += 1
    else:
        count.former += 1


def _pages(database: Database, *, write: bool) -> Iterator[tuple[Session, list[ProjectSecret]]]:
    """Read all secrets page by page, each in a transaction of its own."""
    after = None
    while True:
        with database.write() if write else database.read() as session:
            page = list(secrets_of_all(session, after=after, limit=PAGE))
            if not page:
                return
            after = page[-1].id
            yield session, page
