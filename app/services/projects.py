"""The default project and its first key."""

from dataclasses import dataclass
from uuid import UUID

from app.db.repositories.keys import KeyRepository
from app.db.repositories.projects import add_project, find_project
from app.db.session import Database
from app.domain.clock import unix_ms
from app.domain.ids import new_id
from app.security.scopes import GRANTABLE
from app.services.keys import insert_key

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
        keys = KeyRepository(session, project.id)
        made = insert_key(keys, name=ADMIN_KEY_NAME, scopes=GRANTABLE, now=now)
        return Bootstrap(project.id, made.secret)


def default_project_id(database: Database) -> UUID | None:
    """Id of the default project, None before the first start."""
    with database.read() as session:
        project = find_project(session, DEFAULT_PROJECT)
        return project.id if project else None
