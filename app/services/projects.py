"""The default project and its first key."""

from dataclasses import dataclass
from uuid import UUID

from app.db.repositories.keys import KeyRepository
from app.db.repositories.projects import add_project, find_project
from app.db.session import Database
from app.domain.clock import unix_ms
from app.domain.ids import new_id
from app.security.auth import new_key, read_key
from app.security.scopes import ALL_SCOPES

DEFAULT_PROJECT = "default"
ADMIN_KEY_NAME = "admin"


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """The default project; `admin_key` is there only when this call made it."""

    project_id: UUID
    admin_key: str | None


def ensure_default_project(database: Database) -> Bootstrap:
    """Make the default project with an admin key, unless it is there. The key is shown once."""
    with database.write() as session:
        project = find_project(session, DEFAULT_PROJECT)
        if project is not None:
            return Bootstrap(project.id, None)
        now = database.now(session)
        project = add_project(session, new_id(unix_ms(now)), DEFAULT_PROJECT, now=now)
        text = new_key()
        presented = read_key(text)
        assert presented is not None  # noqa: S101 - the form is our own
        KeyRepository(session, project.id).add(
            id=new_id(unix_ms(now)),
            created_at=now,
            name=ADMIN_KEY_NAME,
            prefix=presented.prefix,
            secret_sha256=presented.sha256,
            scopes=sorted(ALL_SCOPES),
        )
        return Bootstrap(project.id, text)


def default_project_id(database: Database) -> UUID | None:
    """Id of the default project, None before the first start."""
    with database.read() as session:
        project = find_project(session, DEFAULT_PROJECT)
        return project.id if project else None
