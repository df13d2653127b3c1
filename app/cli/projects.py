"""`debias projects`: make projects and limit them, on the database itself."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from app.db.schema import require_current
from app.db.session import Database
from app.db.tables import Project
from app.db.uow import UnitOfWork, unit_of_work
from app.domain.errors import ValidationFailed
from app.schemas.admin import ProjectPatch, ProjectRequest
from app.security.scopes import ALL_SCOPES, Principal
from app.services import project_admin
from app.services.projects import ensure_default_project
from app.services.quotas import Quota, quotas_of
from app.settings import Settings

if TYPE_CHECKING:
    from rich.console import Console

NO_LIMIT = "none"
PAGE = 100

BodyT = TypeVar("BodyT", bound=BaseModel)


def list_projects(settings: Settings, console: "Console") -> None:
    """Print all projects with their limits and what they use of them."""
    from rich.table import Table

    table = Table("Project", "Weight", "Running", "Waiting", "Storage", "GPU s/day", "Kept", "")
    with operating(settings) as u:
        for project in _all_projects(u):
            table.add_row(*_row(u, project))
    console.print(table)


def create_project(settings: Settings, name: str, limits: Mapping[str, str | None]) -> None:
    """Make a project and print its first key."""
    request = _read(ProjectRequest, {"name": name, **_given(limits)})
    with operating(settings, write=True) as u:
        secret = project_admin.create_project(u, request).key.secret
    # Only the key: a script can keep it with $(...).
    print(secret)


def change_project(settings: Settings, name: str, changes: Mapping[str, str | None]) -> None:
    """Change limits of a project, its name, or whether it is suspended."""
    patch = _read(ProjectPatch, _given(changes))
    with operating(settings, write=True) as u:
        project = project_admin.project_named(u, name)
        project_admin.update_project(u, project.id, patch, expected=None)


@contextmanager
def operating(settings: Settings, *, write: bool = False) -> Iterator[UnitOfWork]:
    """Open one transaction in the name of whoever has the machine."""
    database = Database(settings.resolved_database_url, pooled=False)
    try:
        require_current(database)
        principal = Principal(ensure_default_project(database).project_id, None, ALL_SCOPES)
        with unit_of_work(database, principal, write=write) as u:
            yield u
    finally:
        database.dispose()


def _all_projects(u: UnitOfWork) -> Iterator[Project]:
    before = None
    while page := project_admin.list_projects(u, before=before, limit=PAGE):
        yield from page
        before = page[-1].id


def _row(u: UnitOfWork, project: Project) -> list[str]:
    owner = Principal(project.id, None, ALL_SCOPES)
    quotas = quotas_of(UnitOfWork(u.database, u.session, owner), project)
    names = ("max_running", "max_queued", "max_storage_bytes", "max_gpu_s_per_day")
    return [
        project.name,
        f"{project.weight:g}",
        *(_shown(quotas[name]) for name in names),
        f"{project.retention_days} d",
        "suspended" if project.suspended else "",
    ]


def _shown(quota: Quota) -> str:
    return str(quota.used) if quota.limit is None else f"{quota.used} of {quota.limit}"


def _given(options: Mapping[str, str | None]) -> dict[str, Any]:
    """Leave out what was not given; `none` lifts a limit."""
    given = {name: value for name, value in options.items() if value is not None}
    return {name: None if value == NO_LIMIT else value for name, value in given.items()}


def _read(kind: type[BodyT], fields: Mapping[str, Any]) -> BodyT:
    """Hold options to the same rules as a request's body; they come as text."""
    try:
        return kind.model_validate(fields, strict=False)
    except ValidationError as exc:
        error = exc.errors(include_url=False)[0]
        option = ".".join(str(part) for part in error["loc"]).replace("_", "-")
        raise ValidationFailed(f"{option}: {error['msg']}.") from exc
