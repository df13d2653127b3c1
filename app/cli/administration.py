"""Work on the database without an API: migrate it, make keys."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.cli.projects import operating
from app.db.schema import head_revision, upgrade
from app.db.session import Database
from app.db.uow import UnitOfWork
from app.domain.errors import Finding, ValidationFailed
from app.security.scopes import ALL_SCOPES, GRANTABLE, TENANT, Principal, Scope
from app.services import keys
from app.services.home import make_home
from app.services.project_admin import project_named
from app.services.projects import ensure_default_project
from app.settings import Settings


@dataclass(frozen=True, slots=True)
class UpgradedDatabase:
    """Schema after an upgrade; `admin_key` is there only when the default project was made."""

    revision: str
    admin_key: str | None


def upgrade_database(settings: Settings) -> UpgradedDatabase:
    """Migrate to this release's schema, and make the default project of an empty database."""
    if settings.database_url is None:
        make_home(settings.home)
    database = Database(settings.resolved_database_url, pooled=False, answer_timeout_s=None)
    try:
        upgrade(database)
        return UpgradedDatabase(head_revision(), ensure_default_project(database).admin_key)
    finally:
        database.dispose()


def make_key(
    settings: Settings, name: str, scopes: Sequence[str], *, project: str | None = None
) -> str:
    """Make a key of a project, by default of the default project, and return its text."""
    granted = _read_scopes(scopes)
    with operating(settings, write=True) as u:
        if project is not None:
            owner = Principal(project_named(u, project).id, None, ALL_SCOPES)
            u = UnitOfWork(u.database, u.session, owner)
        return keys.create_key(u, name=name, scopes=granted, expires_at=None).secret


def _read_scopes(names: Sequence[str]) -> list[Scope]:
    known = {scope.value for scope in GRANTABLE}
    unknown = sorted(set(names) - known)
    if unknown:
        finding = Finding("/scopes", "unknown_scope", f"Use any of: {', '.join(sorted(known))}.")
        raise ValidationFailed(
            f"Unknown scope {', '.join(unknown)}. Use any of: {', '.join(sorted(known))}.",
            findings=[finding],
        )
    return [Scope(name) for name in names] or sorted(TENANT)
