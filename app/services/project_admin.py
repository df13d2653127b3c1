"""Projects as their operator sees them: make one, limit it, give it a key."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy.exc import IntegrityError

from app.db.events import add_to_outbox
from app.db.repositories.keys import KeyRepository
from app.db.repositories.projects import (
    ProjectRepository,
    add_project,
    find_project,
    page_of_projects,
)
from app.db.tables import Project
from app.db.transition import DISPATCH_TOPIC
from app.db.uow import UnitOfWork
from app.domain.audit import AuditAction
from app.domain.clock import unix_ms
from app.domain.errors import Conflict, Finding, NotFound, PreconditionFailed, ValidationFailed
from app.domain.ids import IdPrefix, format_id, new_id
from app.schemas.admin import ProjectPatch, ProjectRequest
from app.security.scopes import TENANT, Scope
from app.services.audit import record
from app.services.keys import NewKey, insert_key
from app.services.projects import DEFAULT_PROJECT


@dataclass(frozen=True, slots=True)
class NewProject:
    """A project that was just made, with its first key."""

    row: Project
    key: NewKey


def list_projects(u: UnitOfWork, *, before: UUID | None, limit: int) -> Sequence[Project]:
    """List all projects, newest first."""
    return page_of_projects(u.session, before=before, limit=limit)


def get_project(u: UnitOfWork, project_id: UUID) -> Project:
    """Return any project."""
    return _found(ProjectRepository(u.session, project_id).find())


def project_named(u: UnitOfWork, name: str) -> Project:
    """Return the project of this name."""
    project = find_project(u.session, name)
    if project is None:
        raise NotFound(f"There is no project {name!r}.")
    return project


def create_project(u: UnitOfWork, request: ProjectRequest) -> NewProject:
    """Make a project and its first key, which can do everything inside it and nothing beyond.

    Raises
    ------
    Conflict
        When the name is taken.
    """
    limits = request.model_dump(exclude={"name", "key_name"})
    project_id = new_id(unix_ms(u.now))
    try:
        with u.session.begin_nested():
            project = add_project(u.session, project_id, request.name, now=u.now, limits=limits)
    except IntegrityError as exc:
        raise _name_taken(request.name) from exc
    _audit(u, AuditAction.PROJECT_CREATED, project, limits | {"name": request.name})
    return NewProject(project, _make_key(u, project, name=request.key_name, scopes=TENANT))


def update_project(
    u: UnitOfWork, project_id: UUID, patch: ProjectPatch, *, expected: frozenset[int] | None
) -> Project:
    """Change name and limits; they hold from the next decision on, and end no running job.

    Raises
    ------
    NotFound, PreconditionFailed
        When the project is not there, or not as the caller saw it.
    Conflict
        When the name is taken, or is the one by which the service finds its default project.
    """
    projects = ProjectRepository(u.session, project_id)
    _found(projects.find())
    project = projects.lock()
    if expected is not None and project.version not in expected:
        raise PreconditionFailed(
            "The project has changed since you read it: read it again and decide anew."
        )
    asked = patch.model_dump(exclude_unset=True)
    before = {name: getattr(project, name) for name in asked}
    values = {name: value for name, value in asked.items() if before[name] != value}
    if not values:
        return project
    if "name" in values and project.name == DEFAULT_PROJECT:
        raise Conflict(f"The project {DEFAULT_PROJECT!r} keeps its name: the service looks for it.")
    try:
        with u.session.begin_nested():
            project = projects.change(values, now=u.now)
    except IntegrityError as exc:
        raise _name_taken(str(values["name"])) from exc
    _audit(u, AuditAction.PROJECT_CHANGED, project, _changes(before, values))
    # A higher cap or the end of a suspension may let waiting jobs run.
    add_to_outbox(u.session, DISPATCH_TOPIC, project_id, now=u.now)
    return project


def create_project_key(
    u: UnitOfWork,
    project_id: UUID,
    *,
    name: str,
    scopes: Sequence[Scope] | None,
    expires_at: datetime | None,
) -> NewKey:
    """Make a further key of a project, for a tenant who has lost theirs.

    Raises
    ------
    ValidationFailed
        When it would have the scope `admin`, which leads beyond the project.
    """
    project = get_project(u, project_id)
    granted = TENANT if scopes is None else frozenset(scopes)
    if not granted <= TENANT:
        message = "Leave out admin: it reaches all projects. Grant it to a key of your own."
        finding = Finding("/scopes", "scope_not_grantable", message)
        raise ValidationFailed(message, findings=[finding])
    if expires_at is not None and expires_at <= u.now:
        message = "Give a time in the future, or leave it out."
        finding = Finding("/expires_at", "in_the_past", message)
        raise ValidationFailed(message, findings=[finding])
    return _make_key(u, project, name=name, scopes=granted, expires_at=expires_at)


def _make_key(
    u: UnitOfWork,
    project: Project,
    *,
    name: str,
    scopes: frozenset[Scope],
    expires_at: datetime | None = None,
) -> NewKey:
    keys = KeyRepository(u.session, project.id)
    made = insert_key(keys, name=name, scopes=scopes, now=u.now, expires_at=expires_at)
    record(
        u,
        AuditAction.KEY_CREATED,
        target=format_id(IdPrefix.KEY, made.row.id),
        details={"name": name, "scopes": made.row.scopes},
        project_id=project.id,
    )
    return made


def _audit(
    u: UnitOfWork, action: AuditAction, project: Project, details: Mapping[str, Any]
) -> None:
    target = format_id(IdPrefix.PROJECT, project.id)
    record(u, action, target=target, details=details, project_id=project.id)


def _changes(before: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: {"from": before[name], "to": value} for name, value in values.items()}


def _name_taken(name: str) -> Conflict:
    return Conflict(f"There is a project {name!r} already: choose another name.")


def _found(project: Project | None) -> Project:
    if project is None:
        raise NotFound("There is no such project.")
    return project
